"""Logs on disk in Kafka's formats: segments, indexes, recovery, retention, producers' states; the only data files.

Reading order: ``log.py`` (open, append, roll, truncate), ``segment_list.py`` and ``segment.py`` with ``index.py`` and
``txn_index.py``, ``files.py`` (the only access to files), ``reader.py`` (slices by offset, offsets by time),
``validator.py`` and ``record_validation.py`` (what is checked of a batch), ``producer_state.py`` (idempotence:
sequences, duplicates; transactions) with ``producer_snapshot.py`` and ``unstable_transactions.py``,
``leader_epoch.py``, ``checkpoints.py``, ``loader.py`` and ``recovery_scan.py`` (after a crash), ``manager.py`` (data
folders: ``folder.py``), ``unflushed.py`` and ``flush.py`` (fsync, group commit), ``maintenance.py`` with
``retention.py``, ``deferred_removals.py``, ``future_logs.py``. Old formats: ``up_conversion.py``,
``down_conversion.py``. For ``ottla log``: ``dump.py``, ``verify.py``, ``repair.py``, ``damage.py``.

- A log is made closed, a name and offsets of checkpoints; ``Log.open()`` reads the folder, and recovers it after an
  unclean stop.
- It knows record batches and errors of the protocol, and of the broker only clock, threads and events.
- Recovery is right after a crash at any point. No record becomes an object on the way in or out.

To change

- which records are refused or corrected: ``log/validator.py`` ``check_batch`` (CRC, size, format),
  ``check_client_batch`` (header); ``log/record_validation.py`` ``validate`` (records, by the scan in
  ``ottla_protocol/records``); which compressed frames: ``ottla_protocol/records/frames.py``
- max.message.bytes, a wrong CRC: ``log/validator.py`` ``check_batch``
- a duplicate of an idempotent producer, a gap in its sequence numbers: ``log/producer_state.py`` ``ProducerStates``
- which requests of a transactional producer come too late: ``log/heard_connections.py`` ``ConnectionAge``,
  ``HeardConnections``, which ``log/producer_state.py`` ``hear`` and ``coordinator/transaction/coordinator.py``
  ``hear`` ask; why: ``docs/decisions/0009``
- when old segments are deleted (retention.ms, retention.bytes): ``log/retention.py`` ``expired_segments``; by
  policies of the user's own: ``log/user_retention.py``; which logs are compacted, and when:
  ``log/cleaner/schedule.py``; how: ``log/cleaner/service.py``
- what recovery does after a crash: ``log/loader.py``; what makes a batch damaged: ``log/recovery_scan.py``
  ``SegmentScan``
"""
