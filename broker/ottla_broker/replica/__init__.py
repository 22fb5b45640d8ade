"""Partitions as replicas: leaders and followers, what is committed, and what waits for it.

Reading order: ``partition.py`` (a partition's role, appends), ``high_watermark.py`` (what waits for it),
``leadership.py`` and ``follower_state.py`` (what a leader knows), ``environment.py`` (what partitions share),
``manager.py`` (all of a broker's), ``delayed_produce.py``, ``delayed_fetch.py``, ``offset_waiters.py``. In a cluster:
``state_changes.py`` (the controller's requests), ``fetcher_manager.py``, ``fetcher.py``, ``alter_partition.py``,
``leader_lease.py``, ``replication_quota.py``. Beside these: ``log_dir_moves.py``, ``transaction_verifier.py``,
``txn_markers.py``.

- Handlers and coordinators append through ``Partition``, never through ``Log``: it checks that this broker leads.
- The high watermark is the least end offset of the leader, the in-sync replicas, and those about to join them. It
  stands still while fewer than ``min.insync.replicas`` are in sync. A broker alone leads all partitions, with itself
  as the only replica.
- A partition opens its log when it is first needed: a start with ten thousand partitions opens none.
- In-sync replicas change when the controller has agreed. Until then a record must reach both sets.

To change

- where the high watermark moves: ``replica/partition.py`` ``_advance_high_watermark``: with followers to
  ``replica/leadership.py`` ``committed_offset``, unless fewer than ``min.insync.replicas`` are in sync; without any
  to the end of the log, or of what is fsynced if the log fsyncs
- where a follower truncates: ``replica/fetcher.py`` ``_truncate``, ``_find_range`` → ``replica/partition.py``
  ``truncate`` → ``log/log.py`` ``truncate_to``, or ``replica/partition.py`` ``restart_at`` → ``log/log.py``
  ``truncate_fully_and_start_at``; the leader reports the diverging epoch (KIP-595) in ``fetch/fetch_request.py``
  ``_diverges``, which ``fetch/follower_fetch.py`` inherits
- who is in sync: ``replica/leadership.py`` ``add_caught_up``, ``remove_lagging``, ``remove_lossy`` →
  ``replica/alter_partition.py``; the controller decides in ``controller/cluster/alter_partition.py``
"""
