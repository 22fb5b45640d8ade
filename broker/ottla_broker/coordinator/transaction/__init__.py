"""The transaction coordinator on ``__transaction_state`` (KIP-98, KIP-360, KIP-890).

``states.py`` is the table of states, ``metadata.py`` what is known of a transactional id, ``records.py`` its bytes in
the log, ``transaction_shard.py`` the ids of one partition, ``coordinator.py`` what requests do, ``markers.py`` how the
end of a transaction gets to its partitions.
"""
