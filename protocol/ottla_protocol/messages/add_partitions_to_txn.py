"""AddPartitionsToTxn, key 24: the partitions that a transaction is about to write to (KIP-98).

Versions 2 and 5 have new errors, 3 is flexible. Clients send versions up to 3, brokers 4 and 5: several transactions
at once, also to verify that a partition is part of one (KIP-890).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int16, Int32, Int64, Message, String, Struct, field


class AddPartitionsToTxnTopic(Struct):
    name: String = field(default="")
    partitions: list[Int32] = field(default_factory=list)


class AddPartitionsToTxnTransaction(Struct):
    """One transaction. ``verify_only`` asks whether the partitions are part of it, and adds none."""

    transactional_id: String = field("4+", default="")
    producer_id: Int64 = field("4+", default=0)
    producer_epoch: Int16 = field("4+", default=0)
    verify_only: Bool = field("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field("4+", default_factory=list)


class AddPartitionsToTxnRequest(Message, key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"):
    """One transaction up to version 3, several from 4 on."""

    transactions: list[AddPartitionsToTxnTransaction] = field("4+", default_factory=list)
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", default_factory=list)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = field(default=0)
    partition_error_code: Int16 = field(default=0)


class AddPartitionsToTxnTopicResult(Struct):
    name: String = field(default="")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(default_factory=list)


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = field("4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("4+", default_factory=list)


class AddPartitionsToTxnResponse(Message, key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"):
    """``error_code`` concerns the whole request, as when another broker may not send it."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3", default_factory=list)
