"""A broker as a member of a cluster: its session with ZooKeeper, and the controller's requests to it.

Reading order: ``member.py`` (puts the parts together: registration, election, controlled shutdown),
``controller_requests.py`` (LeaderAndIsr, UpdateMetadata, StopReplica), ``configs.py``, ``reconnecting_store.py`` (one
store over many sessions), ``lease_monitor.py``, ``leader_discovery.py``, ``reconcile.py`` (what was removed while
this broker was away), ``peer_monitor.py``, ``log_dir_failures.py``. ``marker_transport.py``,
``share_state_transport.py`` and ``group_holders.py`` ask other brokers. A broker alone imports none of this.

- Who may decide is a number that only goes up: the controller's epoch, a partition's leader epoch, a registration's
  epoch. Every write of a controller checks its epoch in the same transaction, every request to a broker carries it.
  So a judgement may be quick and wrong: who was replaced too early finds out, and can commit nothing meanwhile.
- A process that dies closes its sockets: the others notice at once. Sessions are for machines that freeze and
  networks that are cut.
- A broker that hears nothing from ZooKeeper stops by itself, unless its followers show that no other leads.

To change

- how a dead broker is noticed: ``cluster/peer_monitor.py`` ``PeerMonitor``; a silent ZooKeeper:
  ``cluster/lease_monitor.py``; a loop that stands still: ``cluster/loop_guard.py`` ``LoopGuard``
- what a request from the controller does: ``cluster/controller_requests.py`` (is it obeyed?) →
  ``replica/state_changes.py``
"""
