"""ConsumerGroupDescribe, key 69: groups whose partitions the broker assigns, with their members (KIP-848).

Version 1 says which protocol a member uses (KIP-1099).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Int8, Int16, Int32, Message, String, Struct, Uuid, field


class ConsumerGroupDescribeRequest(
    Message, key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"
):
    group_ids: list[String] = field(default_factory=list)
    include_authorized_operations: Bool = field(default=False)


class TopicPartitions(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    topic_name: String = field(default="")
    partitions: list[Int32] = field(default_factory=list)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field(default_factory=list)


class Member(Struct):
    """A member, its current assignment, and its target once others have released their partitions."""

    member_id: String = field(default="")
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    member_epoch: Int32 = field(default=0)
    client_id: String = field(default="")
    client_host: String = field(default="")
    subscribed_topic_names: list[String] = field(default_factory=list)
    subscribed_topic_regex: String | None = field(default=None)
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    member_type: Int8 = field("1+", default=-1, ignorable=True)
    """0 classic, 1 consumer; -1 unknown."""


class DescribedGroup(Struct):
    """A group's state, its epochs, the assignor, and its members."""

    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    group_id: String = field(default="")
    group_state: String = field(default="")
    group_epoch: Int32 = field(default=0)
    assignment_epoch: Int32 = field(default=0)
    assignor_name: String = field(default="")
    members: list[Member] = field(default_factory=list)
    authorized_operations: Int32 = field(default=-0x8000_0000)
    """One bit per operation; -2^31 if not requested."""


class ConsumerGroupDescribeResponse(
    Message, key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"
):
    throttle_time_ms: Int32 = field(default=0)
    groups: list[DescribedGroup] = field(default_factory=list)
