"""The transaction coordinator on ``__transaction_state`` (KIP-98, KIP-360, KIP-890).

``states.py`` is the table of states, ``metadata.py`` what is known of a transactional id, ``records.py`` its bytes in
the log, ``transaction_shard.py`` the ids of one partition, ``coordinator.py`` what requests do, ``markers.py`` how the
end of a transaction gets to its partitions.

To change

- when a transaction may begin or end, which producer is fenced: ``coordinator/transaction/coordinator.py``
  ``TransactionCoordinator`` → ``coordinator/transaction/metadata.py`` ``TransactionMetadata``; the table of states:
  ``coordinator/transaction/states.py``
- what a transaction's end is answered, and when it is decided: ``coordinator/transaction/coordinator.py`` ``end``,
  ``end_with_bump`` → ``coordinator/transaction/states.py`` ``END``, ``END_WITH_BUMP`` →
  ``coordinator/transaction/transaction_shard.py`` ``change`` (the decision in the log) →
  ``coordinator/transaction/coordinator.py`` ``_send_markers``
- how the end of a transaction gets to its partitions: ``coordinator/transaction/markers.py`` ``MarkerSender`` →
  ``cluster/marker_transport.py`` (another broker) or ``coordinator/transaction/local_delivery.py``,
  ``replica/txn_markers.py`` ``TxnMarkers`` (this one) → ``replica/partition.py`` ``append_marker``; offsets:
  ``coordinator/group/group_shard.py`` ``end_transaction``
"""
