"""DescribeTransactions, key 65: the state of transactions, from their coordinator (KIP-664).

There is one version, and it is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, Struct, field


class DescribeTransactionsRequest(Message, key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"):
    transactional_ids: list[String] = field(default_factory=list)


class TopicData(Struct):
    topic: String = field(default="")
    partitions: list[Int32] = field(default_factory=list)


class TransactionState(Struct):
    """``topics`` are the partitions of the open transaction that the user may see."""

    error_code: Int16 = field(default=0)
    transactional_id: String = field(default="")
    transaction_state: String = field(default="")
    transaction_timeout_ms: Int32 = field(default=0)
    transaction_start_time_ms: Int64 = field(default=0)
    """-1 without an open transaction."""
    producer_id: Int64 = field(default=0)
    producer_epoch: Int16 = field(default=0)
    topics: list[TopicData] = field(default_factory=list)


class DescribeTransactionsResponse(Message, key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    transaction_states: list[TransactionState] = field(default_factory=list)
