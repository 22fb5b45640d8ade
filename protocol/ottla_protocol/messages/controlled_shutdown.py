"""ControlledShutdown, key 7: a broker asks the controller to take its leaderships away before it stops.

Version 0's request header has no client id. Version 2+ carries the broker's epoch; version 3 is flexible. Kafka:
``ControlledShutdownRequest``.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, Struct, field


class ControlledShutdownRequest(Message, key=ApiKey.CONTROLLED_SHUTDOWN, versions="0-3", flexible="3+"):
    broker_id: Int32 = field(default=0)
    broker_epoch: Int64 = field("2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: String = field(default="")
    partition_index: Int32 = field(default=0)


class ControlledShutdownResponse(Message, key=ApiKey.CONTROLLED_SHUTDOWN, versions="0-3", flexible="3+"):
    """The partitions that could not be moved; the broker repeats its request while there are any."""

    error_code: Int16 = field(default=0)
    remaining_partitions: list[RemainingPartition] = field(default_factory=list)
