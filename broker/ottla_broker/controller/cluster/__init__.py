"""The controller of a cluster: one broker elects the partitions' leaders and informs the others.

Every broker has a ``ClusterController``, which handlers call through ``controller/api.py``; where it is the
controller, an ``ActiveController``. Reading order: ``controller_election.py`` (who is it), ``controller.py`` (puts
the parts together), ``event_queue.py`` (one task, one event after another), ``context.py`` (what it knows),
``persistence.py`` (reads and writes of the store), ``leader_election.py`` (pure functions),
``partition_state_machine.py``, ``batch.py`` and ``channel.py`` (requests to brokers), ``broker_changes.py``,
``topics.py``, ``deletion.py``, ``reassignment.py``, ``leader_balancer.py``, ``alter_partition.py``,
``zk_notifications.py``.

- An event reads, decides, writes the store, updates the context, and sends its batch; nothing else changes the context.
- Every write checks the controller's epoch. No part knows the ``ActiveController``.

To change

- who becomes leader: ``controller/cluster/leader_election.py`` (the choice),
  ``controller/cluster/partition_state_machine.py`` (the change of state)
- who becomes controller: ``controller/cluster/controller_election.py``
"""
