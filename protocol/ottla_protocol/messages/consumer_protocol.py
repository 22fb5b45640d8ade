"""Versioned data."""

from __future__ import annotations

from ..primitives import Buffer
from ..schema import Bytes, Int32, Message, String, Struct, field
from ..versioned import decode_versioned, encode_versioned


class TopicPartition(Struct):
    """Part of consumer_protocol."""

    topic: String = field(default="")
    partitions: list[Int32] = field(default_factory=list)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """Part of consumer_protocol."""

    assigned_partitions: list[TopicPartition] = field(default_factory=list)
    user_data: Bytes | None = field(default=None)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """Part of consumer_protocol."""

    topics: list[String] = field(default_factory=list)
    user_data: Bytes | None = field(default=None)
    owned_partitions: list[TopicPartition] = field("1+", default_factory=list, ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: String | None = field("3+", default=None, ignorable=True)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """What goes into JoinGroup's ``metadata``."""
    return encode_versioned(subscription, version)


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """What a consumer sent as JoinGroup's ``metadata``; a newer version is read as the newest known.

    Raises ProtocolError, since any client may put anything there.
    """
    return decode_versioned(ConsumerProtocolSubscription, data, tolerate_newer=True)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """What goes into SyncGroup's ``assignment``."""
    return encode_versioned(assignment, version)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """What a consumer is given as SyncGroup's ``assignment``; version and errors as ``decode_subscription``."""
    return decode_versioned(ConsumerProtocolAssignment, data, tolerate_newer=True)
