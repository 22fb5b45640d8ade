"""The data that consumers of a classic group exchange through JoinGroup and SyncGroup.

The coordinator only passes it on, but describes groups by it, and looks there for the topics that a group
reads. Each is an int16 version and then the body; versions only ever grow at their end, so a reader takes a
version it does not know for the newest that it does. Version 1 has owned partitions for cooperative
rebalancing (KIP-429), 2 the generation (KIP-792), 3 the rack (KIP-881).
"""

from __future__ import annotations

from ..primitives import Buffer
from ..schema import Bytes, Int32, Message, String, Struct, field
from ..versioned import decode_versioned, encode_versioned


class TopicPartition(Struct):
    topic: String = field(default="")
    partitions: list[Int32] = field(default_factory=list)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The partitions that a member reads."""

    assigned_partitions: list[TopicPartition] = field(default_factory=list)
    user_data: Bytes | None = field(default=None)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """The topics that a member subscribes to, and the partitions that it owns."""

    topics: list[String] = field(default_factory=list)
    user_data: Bytes | None = field(default=None)
    owned_partitions: list[TopicPartition] = field("1+", default_factory=list, ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: String | None = field("3+", default=None, ignorable=True)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """Encode JoinGroup's ``metadata``."""
    return encode_versioned(subscription, version)


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """Decode a consumer's ``metadata`` in JoinGroup; a newer version is read as the newest known one.

    Raises ProtocolError, since any client may put anything there.
    """
    return decode_versioned(ConsumerProtocolSubscription, data, tolerate_newer=True)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """Encode SyncGroup's ``assignment``."""
    return encode_versioned(assignment, version)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """Decode a consumer's ``assignment`` in SyncGroup, like ``decode_subscription``."""
    return decode_versioned(ConsumerProtocolAssignment, data, tolerate_newer=True)
