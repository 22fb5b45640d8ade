"""The records of share groups on ``__consumer_offsets``, as Kafka writes them.

A record is a pair of messages, key and value; without a value it is a tombstone. The version of the key says what the
record is::

    key 10  group, member     subscription, client
    key 11  group             epoch, hash of the topics
    key 12  group             epoch of the target
    key 13  group, member     the member's part of the target
    key 14  group, member     epochs, partitions it has
    key 15  group             the partitions with state in __share_group_state
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ottla_broker.coordinator.group.modern.records import pack
from ottla_broker.coordinator.group.share.group import InitializedTopic, Partitions, ShareGroup, ShareMember
from ottla_protocol.messages import share_group_records as wire
from ottla_protocol.messages.consumer_group_records import TopicPartitions
from ottla_protocol.schema import Message
from ottla_protocol.versioned import decode_versioned, encode_versioned, peek_version

Key = (
    wire.ShareGroupMemberMetadataKey
    | wire.ShareGroupMetadataKey
    | wire.ShareGroupTargetAssignmentMetadataKey
    | wire.ShareGroupTargetAssignmentMemberKey
    | wire.ShareGroupCurrentMemberAssignmentKey
    | wire.ShareGroupStatePartitionMetadataKey
)
Row = tuple[bytes, bytes | None]

_KINDS: Final[Mapping[int, tuple[type[Key], type[Message]]]] = {
    10: (wire.ShareGroupMemberMetadataKey, wire.ShareGroupMemberMetadataValue),
    11: (wire.ShareGroupMetadataKey, wire.ShareGroupMetadataValue),
    12: (wire.ShareGroupTargetAssignmentMetadataKey, wire.ShareGroupTargetAssignmentMetadataValue),
    13: (wire.ShareGroupTargetAssignmentMemberKey, wire.ShareGroupTargetAssignmentMemberValue),
    14: (wire.ShareGroupCurrentMemberAssignmentKey, wire.ShareGroupCurrentMemberAssignmentValue),
    15: (wire.ShareGroupStatePartitionMetadataKey, wire.ShareGroupStatePartitionMetadataValue),
}


def is_of_share_group(key: bytes) -> bool:
    """Whether a key is one of these records'. Raises ProtocolError for less than a version."""
    return peek_version(key) in _KINDS


def decode(key: bytes, value: bytes | None) -> tuple[Key, Message | None]:
    """Raises ProtocolError."""
    kind = _KINDS[peek_version(key)]
    return decode_versioned(kind[0], key), None if value is None else decode_versioned(kind[1], value)


def apply(group: ShareGroup, key: Key, value: Message | None) -> bool:
    """Apply a record to its group; False for the tombstone that removes the group."""
    if isinstance(key, wire.ShareGroupMetadataKey):
        if value is None:
            return False
        assert isinstance(value, wire.ShareGroupMetadataValue)
        group.epoch, group.topics_hash = value.epoch, value.metadata_hash
    elif isinstance(key, wire.ShareGroupTargetAssignmentMetadataKey):
        assert value is None or isinstance(value, wire.ShareGroupTargetAssignmentMetadataValue)
        group.assignment_epoch = 0 if value is None else value.assignment_epoch
    elif isinstance(key, wire.ShareGroupStatePartitionMetadataKey):
        assert value is None or isinstance(value, wire.ShareGroupStatePartitionMetadataValue)
        group.initialized = {} if value is None else _topics(value)
    else:
        _apply_to_member(group, key, value)
    return True


def _apply_to_member(group: ShareGroup, key: Key, value: Message | None) -> None:
    assert isinstance(
        key,
        (
            wire.ShareGroupMemberMetadataKey,
            wire.ShareGroupTargetAssignmentMemberKey,
            wire.ShareGroupCurrentMemberAssignmentKey,
        ),
    )
    member_id = key.member_id
    if isinstance(key, wire.ShareGroupTargetAssignmentMemberKey):
        if value is None:
            group.target.pop(member_id, None)
        else:
            assert isinstance(value, wire.ShareGroupTargetAssignmentMemberValue)
            group.target[member_id] = _partitions(value.topic_partitions)
        return
    if value is None:
        if isinstance(key, wire.ShareGroupMemberMetadataKey):
            group.remove(member_id)
        return
    known = group.members.get(member_id) or ShareMember(member_id)
    if isinstance(value, wire.ShareGroupMemberMetadataValue):
        known = replace(
            known,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=tuple(value.subscribed_topic_names),
        )
    else:
        assert isinstance(value, wire.ShareGroupCurrentMemberAssignmentValue)
        known = replace(
            known,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=_partitions(value.assigned_partitions),
        )
    group.put(known)


def member(group_id: str, one: ShareMember) -> Row:
    value = wire.ShareGroupMemberMetadataValue(
        rack_id=one.rack_id,
        client_id=one.client_id,
        client_host=one.client_host,
        subscribed_topic_names=list(one.topics),
    )
    return _row(wire.ShareGroupMemberMetadataKey(group_id=group_id, member_id=one.member_id), value)


def current(group_id: str, one: ShareMember) -> Row:
    value = wire.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=one.epoch,
        previous_member_epoch=one.previous_epoch,
        assigned_partitions=pack(one.assigned),
    )
    return _row(wire.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one.member_id), value)


def epoch(group_id: str, value: int, topics_hash: int) -> Row:
    return _row(
        wire.ShareGroupMetadataKey(group_id=group_id),
        wire.ShareGroupMetadataValue(epoch=value, metadata_hash=topics_hash),
    )


def target_epoch(group_id: str, value: int) -> Row:
    return _row(
        wire.ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        wire.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=value),
    )


def target(group_id: str, member_id: str, partitions: Partitions) -> Row:
    return _row(
        wire.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        wire.ShareGroupTargetAssignmentMemberValue(topic_partitions=pack(partitions)),
    )


def initialized(group_id: str, topics: Mapping[bytes, InitializedTopic]) -> Row:
    value = wire.ShareGroupStatePartitionMetadataValue(
        initialized_topics=[
            wire.TopicPartitionsInfo(
                topic_id=topic_id, topic_name=each.name, partitions=sorted(each.partitions)
            )
            for topic_id, each in topics.items()
        ]
    )
    return _row(wire.ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def without_member(group_id: str, member_id: str) -> list[Row]:
    names = {"group_id": group_id, "member_id": member_id}
    return [
        _row(wire.ShareGroupCurrentMemberAssignmentKey(**names), None),
        _row(wire.ShareGroupTargetAssignmentMemberKey(**names), None),
        _row(wire.ShareGroupMemberMetadataKey(**names), None),
    ]


def without_group(group_id: str) -> list[Row]:
    return [
        _row(wire.ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        _row(wire.ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        _row(wire.ShareGroupMetadataKey(group_id=group_id), None),
    ]


def _row(key: Key, value: Message | None) -> Row:
    return encode_versioned(key, key.VERSIONS[0]), None if value is None else encode_versioned(value, 0)


def _partitions(topics: Iterable[TopicPartitions]) -> Partitions:
    return {bytes(each.topic_id): frozenset(each.partitions) for each in topics}


def _topics(value: wire.ShareGroupStatePartitionMetadataValue) -> dict[bytes, InitializedTopic]:
    return {
        bytes(each.topic_id): InitializedTopic(each.topic_name, frozenset(each.partitions))
        for each in (*value.initialized_topics, *value.initializing_topics)
    }
