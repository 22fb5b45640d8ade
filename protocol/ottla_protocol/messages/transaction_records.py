"""The records of ``__transaction_state``, a compacted topic that holds transactional ids and their transactions.

Key and value are each an int16 version and then the body (``versioned``). A null value deletes the id. Kafka 3.9 writes
version 0 of both. Value version 1 is flexible; its tagged fields are Kafka 4's, for epochs that grow with every
transaction (KIP-890), and older brokers skip them.
"""

from __future__ import annotations

from ..schema import Int8, Int16, Int32, Int64, Message, String, Struct, field


class TransactionLogKey(Message, versions="0"):
    transactional_id: String = field(default="")


class TransactionLogPartitions(Struct):
    topic: String = field(default="")
    partition_ids: list[Int32] = field(default_factory=list)


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    """A transactional id's producer and transaction. Times are in milliseconds, -1 where there is none."""

    producer_id: Int64 = field(default=0)
    previous_producer_id: Int64 = field("1+", default=-1, tag=0, ignorable=True)
    """The producer id of the transaction before, where it was another."""
    next_producer_id: Int64 = field("1+", default=-1, tag=1, ignorable=True)
    """The producer id from the end of this transaction on, because the epochs of the present one are used up."""
    producer_epoch: Int16 = field(default=0)
    transaction_timeout_ms: Int32 = field(default=0)
    transaction_status: Int8 = field(default=0)
    transaction_partitions: list[TransactionLogPartitions] | None = field(default_factory=list)
    transaction_last_update_timestamp_ms: Int64 = field(default=0)
    transaction_start_timestamp_ms: Int64 = field(default=0)
    client_transaction_version: Int16 = field("1+", default=0, tag=2, ignorable=True)
    """2 if the client raises its epoch with every transaction."""
