"""``ottla groups``: lists and describes groups of every generation, shows their lag, and sets where they continue.

Read ``places.py`` first: where a group's place is kept, in Kafka, in a share group's state or in ZooKeeper; then
``command.py``. ``lag.py`` and ``lag_history.py`` show how far groups are behind, ``reset_offsets.py`` and
``migrate_offsets.py`` set places. The console uses ``places.py``, ``lag.py``, ``lag_history.py`` and
``reset_plans.py``.

To change

- where a group's place is kept, for lag and resetting: ``places.py`` ``kept``; which offsets in ZooKeeper count:
  ``offsets_in_use``
- how lag is measured: ``lag.py`` ``look_of``; the trend: ``History``
- what brokers have kept of a group's lag: ``lag_history.py`` ``show_history``
- where a reset goes to: ``reset_plans.py`` ``to_time`` and its like
"""
