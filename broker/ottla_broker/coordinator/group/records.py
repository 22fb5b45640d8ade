"""The records of ``__consumer_offsets``, byte for byte as Kafka 3.9 writes them.

A key and a value each begin with their version, an int16; the version of the key says what the record is::

    key 0, 1  OffsetCommitKey: group, topic, partition
              value 3: offset:int64 leader_epoch:int32 metadata:string commit_timestamp:int64
              value 1, where the consumer asked for a retention time: offset:int64 metadata:string
                       commit_timestamp:int64 expire_timestamp:int64
    key 2     GroupMetadataKey: group
              value 3: protocol_type:string generation:int32 protocol:string? leader:string?
                       state_timestamp:int64 members:[member_id:string group_instance_id:string? client_id:string
                       client_host:string rebalance_timeout:int32 session_timeout:int32 subscription:bytes
                       assignment:bytes]; a string is an int16 length, -1 for null, and UTF-8
    no value  a tombstone: the offset, or the group, is deleted

Values of version 4 are flexible and are read, not written. Kafka: ``GroupMetadataManager.scala``.

Offsets and members, of which there are many, are written without the message classes; everything is read with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, pack

from ottla_broker.coordinator.group.group import Group
from ottla_broker.coordinator.group.offsets import NO_EXPIRY, Committed
from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages import group_records as wire
from ottla_protocol.versioned import decode_versioned, encode_versioned, peek_version

_GROUP_KEY_VERSION = 2
_GROUP_VALUE_VERSION = 3
_NULL = b"\xff\xff"
_pack_bare_value = Struct(">hqihq").pack
pack_partition = Struct(">i").pack


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return offset_key_start(group_id, topic) + pack_partition(partition)


def offset_key_start(group_id: str, topic: str) -> bytes:
    """An offset's key without its last field, which ``pack_partition`` makes."""
    group, name = group_id.encode(), topic.encode()
    return pack(f">hh{len(group)}sh{len(name)}s", 1, len(group), group, len(name), name)


def offset_value(committed: Committed) -> bytes:
    if not committed.metadata and committed.expire_ms == NO_EXPIRY:
        return _pack_bare_value(3, committed.offset, committed.leader_epoch, 0, committed.commit_ms)
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
    return encode_versioned(wire.GroupMetadataKey(group=group_id), _GROUP_KEY_VERSION)


def group_value(group: Group, assignments: Mapping[str, bytes]) -> bytes:
    """The value of a group's metadata: this generation, with ``assignments`` by member id."""
    protocol = group.protocol_name
    parts = [
        pack(">h", _GROUP_VALUE_VERSION),
        _string(group.protocol_type or ""),
        pack(">i", group.generation),
        _string(protocol),
        _string(group.leader_id),
        pack(">qi", group.state_since_ms, len(group.members)),
    ]
    for member in group.members.values():
        subscription = member.metadata(protocol)
        assignment = assignments.get(member.member_id, b"")
        parts += (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            pack(">iii", member.rebalance_timeout_ms, member.session_timeout_ms, len(subscription)),
            subscription,
            pack(">i", len(assignment)),
            assignment,
        )
    return b"".join(parts)


def _string(text: str | None) -> bytes:
    if text is None:
        return _NULL
    encoded = text.encode()
    return pack(">h", len(encoded)) + encoded


def read_key(key: bytes | None) -> wire.OffsetCommitKey | wire.GroupMetadataKey:
    """The key of a record. Raises ProtocolError, also for a kind that only a newer broker knows."""
    if key is None:
        raise ProtocolError("a record without a key")
    return wire.decode_key(key)


def read_offset(value: bytes, position: int) -> Committed:
    """The committed offset in a value that was read at ``position``. Raises ProtocolError."""
    read = decode_versioned(wire.OffsetCommitValue, value)
    return Committed(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp, position
    )


def read_group(value: bytes) -> wire.GroupMetadataValue:
    """The group metadata in a value. Raises ProtocolError."""
    read = decode_versioned(wire.GroupMetadataValue, value)
    if peek_version(value) == 0:
        for member in read.members:
            member.rebalance_timeout = member.session_timeout
    return read
