"""WriteTxnMarkers, key 27: append the markers that end transactions to their partitions (KIP-98).

A transaction coordinator sends it to leaders, and so do tools that abort a hanging transaction (KIP-664). Version 1 is
flexible, version 2 names the version of the transaction (KIP-1228).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int8, Int16, Int32, Int64, Message, String, Struct, field


class WritableTxnMarkerTopic(Struct):
    name: String = field(default="")
    partition_indexes: list[Int32] = field(default_factory=list)


class WritableTxnMarker(Struct):
    """``transaction_result`` is True for a commit. ``coordinator_epoch`` is -1 from tools.

    The epoch of a marker of ``transaction_version`` 2 is higher than that of its transaction, and the next one has it.
    """

    producer_id: Int64 = field(default=0)
    producer_epoch: Int16 = field(default=0)
    transaction_result: Bool = field(default=False)
    topics: list[WritableTxnMarkerTopic] = field(default_factory=list)
    coordinator_epoch: Int32 = field(default=0)
    transaction_version: Int8 = field("2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(Message, key=ApiKey.WRITE_TXN_MARKERS, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarker] = field(default_factory=list)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class WritableTxnMarkerTopicResult(Struct):
    name: String = field(default="")
    partitions: list[WritableTxnMarkerPartitionResult] = field(default_factory=list)


class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = field(default=0)
    topics: list[WritableTxnMarkerTopicResult] = field(default_factory=list)


class WriteTxnMarkersResponse(Message, key=ApiKey.WRITE_TXN_MARKERS, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = field(default_factory=list)
