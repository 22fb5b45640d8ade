"""The consumer coordinator designed in 2012: it assigns partitions, and pushes its requests to the consumers.

What the design left open is settled in docs/decisions/0021.

To change

- who reads what in a group of the coordinator designed in 2012: ``coordinator/push/rebalancer.py`` ``Rebalancer``,
  ``coordinator/push/assignment.py``; when a consumer has failed: ``coordinator/push/coordinator.py``
  ``PushCoordinator``; its messages: ``ottla_protocol/push.py``
"""
