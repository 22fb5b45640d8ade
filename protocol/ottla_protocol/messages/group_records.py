"""The records of ``__consumer_offsets``, a compacted topic that holds groups and their offsets.

Key and value are each an int16 version and then the body (``versioned``). The version of the key says what
the record is: 0 and 1 an offset, 2 a group; a null value deletes it. Kafka 3.9 writes key versions 1 and 2,
value version 3 for both; 4 is flexible.
"""

from __future__ import annotations

from ..errors import ProtocolError
from ..primitives import Buffer
from ..schema import Bytes, Int32, Int64, Message, String, Struct, field
from ..versioned import decode_versioned, peek_version


class OffsetCommitKey(Message, versions="0-1"):
    group: String = field(default="")
    topic: String = field(default="")
    partition: Int32 = field(default=0)


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """The offset, with the text committed with it; times in milliseconds, -1 where not set."""

    offset: Int64 = field(default=0)
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: String = field(default="")
    commit_timestamp: Int64 = field(default=0)
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)


class GroupMetadataKey(Message, versions="2"):
    group: String = field(default="")


class MemberMetadata(Struct):
    """A member with its subscription and assignment (``consumer_protocol``)."""

    member_id: String = field(default="")
    group_instance_id: String | None = field("3+", default=None, ignorable=True)
    client_id: String = field(default="")
    client_host: String = field(default="")
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    """Milliseconds, as is ``session_timeout``."""
    session_timeout: Int32 = field(default=0)
    subscription: Bytes = field(default=b"")
    assignment: Bytes = field(default=b"")


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    """A classic group as it was after its last rebalance."""

    protocol_type: String = field(default="")
    generation: Int32 = field(default=0)
    protocol: String | None = field(default="")
    """The assignment strategy; null in an empty group."""
    leader: String | None = field(default="")
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(default_factory=list)


def decode_key(data: Buffer) -> OffsetCommitKey | GroupMetadataKey:
    """The key of a record of ``__consumer_offsets``; its version distinguishes the kinds.

    Raises ProtocolError for a version that is neither's: newer brokers write such records, and a reader
    that meets one passes it over.
    """
    version = peek_version(data)
    if version in (0, 1):
        return decode_versioned(OffsetCommitKey, data)
    if version == 2:
        return decode_versioned(GroupMetadataKey, data)
    raise ProtocolError(f"no group record has a key of version {version}")
