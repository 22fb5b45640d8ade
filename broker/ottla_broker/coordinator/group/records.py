"""The records of ``__consumer_offsets``, byte for byte as Kafka 3.9 writes them.

A key and a value each begin with their version, an int16; the version of the key tells what the record is::

    key 0, 1  OffsetCommitKey: group, topic, partition
              value 3: offset:int64 leader_epoch:int32 metadata:string commit_timestamp:int64
              value 1, where the consumer asked for a retention time: offset:int64 metadata:string
                       commit_timestamp:int64 expire_timestamp:int64
    key 2     GroupMetadataKey: group
              value 3: protocol type, generation, protocol, leader, time of the state, members with their
                       subscriptions and assignments
    no value  a tombstone: the offset, or the group, is gone

Values of version 4 are flexible and are read, not written. Kafka: ``GroupMetadataManager.scala``.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack, unpack_from
from typing import TYPE_CHECKING

from ottla_broker.coordinator.group.offsets import NO_EXPIRY, Committed
from ottla_protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from ottla_broker.coordinator.group.group import Group

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2


class UnknownRecordError(ValueError):
    """A key or value of a version that is not known: from a newer broker, perhaps."""


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset."""
    group, name = group_id.encode(), topic.encode()
    return pack(f">hh{len(group)}sh{len(name)}si", 1, len(group), group, len(name), name, partition)


def offset_value(committed: Committed) -> bytes:
    """The value of a committed offset."""
    metadata = committed.metadata.encode()
    size = len(metadata)
    if committed.expire_ms != NO_EXPIRY:
        return pack(
            f">hqh{size}sqq", 1, committed.offset, size, metadata, committed.commit_ms, committed.expire_ms
        )
    return pack(
        f">hqih{size}sq", 3, committed.offset, committed.leader_epoch, size, metadata, committed.commit_ms
    )


def group_key(group_id: str) -> bytes:
    """The key of a group's metadata."""
    return pack(">h", GROUP_KEY_VERSION) + GroupMetadataKey(group=group_id).encode(GROUP_KEY_VERSION)


def group_value(group: Group, assignments: Mapping[str, bytes]) -> bytes:
    """The value of a group's metadata: this generation, with ``assignments`` by member id."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return pack(">h", 3) + value.encode(3)


def read_key(key: bytes | None) -> OffsetCommitKey | GroupMetadataKey:
    """What a record is about. Raises UnknownRecordError for a kind that is not known, ProtocolError for
    nonsense."""
    if key is None or len(key) < 2:
        raise UnknownRecordError("a record without a key that says what it is")
    (version,) = unpack_from(">h", key)
    if version in OFFSET_KEY_VERSIONS:
        return OffsetCommitKey.decode(key, version, 2)
    if version == GROUP_KEY_VERSION:
        return GroupMetadataKey.decode(key, version, 2)
    raise UnknownRecordError(f"a record whose key has version {version}")


def read_offset(value: bytes, position: int) -> Committed:
    """The committed offset in a value that was read at ``position``. Raises as :func:`read_key`."""
    version = _version(value, OffsetCommitValue.VERSIONS)
    read = OffsetCommitValue.decode(value, version, 2)
    return Committed(
        read.offset,
        read.leader_epoch,
        read.metadata,
        read.commit_timestamp,
        read.expire_timestamp,
        position,
    )


def read_group(value: bytes) -> GroupMetadataValue:
    """The group metadata in a value. Raises as :func:`read_key`."""
    version = _version(value, GroupMetadataValue.VERSIONS)
    read = GroupMetadataValue.decode(value, version, 2)
    if version == 0:
        for member in read.members:
            member.rebalance_timeout = member.session_timeout
    return read


def is_commit_marker(key: bytes | None) -> bool:
    """Whether a control record ends its transaction with a commit. Its key: version:int16 type:int16 (1 is
    commit)."""
    if key is None or len(key) < 4:
        raise UnknownRecordError("a control record without a type")
    return bool(unpack_from(">h", key, 2)[0] == 1)


def _version(value: bytes, known: tuple[int, int]) -> int:
    if len(value) < 2:
        raise UnknownRecordError("a value that is too short to have a version")
    version = int(unpack_from(">h", value)[0])
    if not known[0] <= version <= known[1]:
        raise UnknownRecordError(f"a value of version {version}")
    return version
