"""Subscriptions and assignments as bytes, which members exchange in JoinGroup and SyncGroup.

Like Java, always writes the newest version: versions only add fields at the end, and older clients read the fields that
they know. Reads versions 0 to 3 and all newer ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla_protocol.messages import consumer_protocol as wire

from ..types import TopicPartition
from .assignors.base import NO_GENERATION, Subscription

PROTOCOL_TYPE = "consumer"
"""The protocol type of consumer groups."""

VERSION = 3
"""The version to write, the same for both."""


def grouped(partitions: Iterable[TopicPartition]) -> list[wire.TopicPartition]:
    """Partitions by topic, in the given order."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return [wire.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]


def spread(topics: Iterable[wire.TopicPartition]) -> tuple[TopicPartition, ...]:
    """The reverse of ``grouped``."""
    return tuple(TopicPartition(each.topic, number) for each in topics for number in each.partitions)


def subscription_bytes(subscription: Subscription) -> bytes:
    """A member's metadata in JoinGroup, without the instance id, which the request has."""
    message = wire.ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=grouped(sorted(subscription.owned)),
        generation_id=subscription.generation,
        rack_id=subscription.rack or None,
    )
    return wire.encode_subscription(message, VERSION)


def read_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Another member's metadata. Raises ProtocolError for invalid bytes."""
    message = wire.decode_subscription(data)
    return Subscription(
        topics=frozenset(message.topics),
        user_data=message.user_data,
        owned=spread(message.owned_partitions),
        generation=max(message.generation_id, NO_GENERATION),
        rack=message.rack_id or None,
        instance_id=instance_id,
    )


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    """A member's assignment in SyncGroup."""
    message = wire.ConsumerProtocolAssignment(assigned_partitions=grouped(partitions))
    return wire.encode_assignment(message, VERSION)


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that the leader assigned. Raises ProtocolError for invalid bytes."""
    return spread(wire.decode_assignment(data).assigned_partitions)
