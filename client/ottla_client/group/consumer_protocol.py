"""What members put into JoinGroup and SyncGroup for each other: subscriptions and assignments in bytes.

As Java does, the newest version is written always, since versions only grow at their end and older clients read
as much as they know; of what others write, versions 0 to 3 and all newer ones are understood.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla_protocol.messages.consumer_protocol import TopicPartition as TopicPartitions

from ..types import TopicPartition
from .assignors.base import NO_GENERATION, Subscription

PROTOCOL_TYPE = "consumer"
"""What groups of consumers call their protocol; other kinds of groups have others."""

VERSION = 3
"""The version that is written, the same for both."""


def grouped(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    """Partitions by topic, both in the order in which they come."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]


def spread(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    """The reverse of ``grouped``."""
    return tuple(TopicPartition(each.topic, number) for each in topics for number in each.partitions)


def subscription_bytes(subscription: Subscription) -> bytes:
    """What a member says in JoinGroup; the group knows the instance id already."""
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=grouped(sorted(subscription.owned)),
        generation_id=subscription.generation,
        rack_id=subscription.rack or None,
    )
    return encode_subscription(message, VERSION)


def read_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """What another member said. Raises ProtocolError for bytes that are no subscription."""
    message = decode_subscription(data)
    return Subscription(
        topics=frozenset(message.topics),
        user_data=message.user_data,
        owned=spread(message.owned_partitions),
        generation=max(message.generation_id, NO_GENERATION),
        rack=message.rack_id or None,
        instance_id=instance_id,
    )


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    """What the leader gives a member in SyncGroup."""
    message = ConsumerProtocolAssignment(assigned_partitions=grouped(partitions))
    return encode_assignment(message, VERSION)


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """What the leader has given. Raises ProtocolError for bytes that are no assignment."""
    return spread(decode_assignment(data).assigned_partitions)
