"""Keys of the transaction coordinator."""

from __future__ import annotations

from ottla_broker.config.model import CLUSTER_WIDE, SHORT, Key, at_least, between, boolean, integer
from ottla_broker.config.server_keys import MOST_NEW_PARTITIONS


class TransactionKeys:
    """Transactional ids, their transactions, and the topic that stores both."""

    transactional_id_expiration_ms = integer(
        604800000, "Time to keep a transactional id that isn't used.", at_least(1)
    )
    transaction_max_timeout_ms = integer(
        900000, "The longest timeout that a transactional producer may request.", at_least(1)
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        10000, "Time between two checks for transactions whose time is up, which are aborted.", at_least(1)
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        3600000, "Time between two checks for expired transactional ids.", at_least(1)
    )
    transaction_partition_verification_enable = boolean(
        True,
        "Before a producer's first batch in a transaction is appended, ask the coordinator whether the partition"
        " belongs to the transaction.",
        CLUSTER_WIDE,
    )
    transaction_state_log_replication_factor: Key[int] = Key(
        SHORT,
        3,
        "Replicas of the transaction topic.",
        at_least(1),
        note="A standalone broker makes one replica.",
    )
    transaction_state_log_num_partitions = integer(
        50, "Partitions of the transaction topic. Don't change this later.", between(1, MOST_NEW_PARTITIONS)
    )
    transaction_state_log_min_isr = integer(
        2,
        "In-sync replicas that the transaction topic needs: its `min.insync.replicas` when it is created.",
        at_least(1),
    )
    transaction_state_log_segment_bytes = integer(
        104857600, "The segment size of the transaction topic.", at_least(1)
    )
