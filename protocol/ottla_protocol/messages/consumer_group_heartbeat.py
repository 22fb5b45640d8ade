"""ConsumerGroupHeartbeat, key 68: join, stay in and leave a group whose partitions the broker assigns (KIP-848).

A field that hasn't changed since the last heartbeat is null, or -1. Version 1 adds a regular expression for the topics,
and the client makes its member id.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int16, Int32, Message, String, Struct, Uuid, field


class HeartbeatTopicPartitions(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[Int32] = field(default_factory=list)


class ConsumerGroupHeartbeatRequest(
    Message, key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"
):
    """Epoch 0 joins, -1 leaves, -2 leaves for a while as a static member."""

    group_id: String = field(default="")
    member_id: String = field(default="")
    member_epoch: Int32 = field(default=0)
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None = field(default=None)
    subscribed_topic_regex: String | None = field("1+", default=None)
    server_assignor: String | None = field(default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = field(default=None)
    """The partitions that the member has."""


class HeartbeatAssignment(Struct):
    topic_partitions: list[HeartbeatTopicPartitions] = field(default_factory=list)


class ConsumerGroupHeartbeatResponse(
    Message, key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"
):
    """The member's epoch, and its partitions where they have changed; null: as before."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32 = field(default=0)
    heartbeat_interval_ms: Int32 = field(default=0)
    assignment: HeartbeatAssignment | None = field(default=None)
