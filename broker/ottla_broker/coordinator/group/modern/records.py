"""The records of groups of the consumer protocol on ``__consumer_offsets``, as Kafka writes them.

A record is a pair of messages, key and value; without a value it is a tombstone. The version of the key says what the
record is::

    key 3   group             epoch
    key 4   group             the topics it consumes, with partitions and racks
    key 5   group, member     subscription, timeouts, client; the classic protocol's metadata if it uses that
    key 6   group             epoch of the target
    key 7   group, member     the member's part of the target
    key 8   group, member     epoch, state, partitions it has, partitions it has to give up
    key 16  group, regex      the topics that it matched (Kafka 4.0)

Kafka: ``GroupCoordinatorRecordHelpers``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla_broker.coordinator.group.modern.member import (
    ClassicSide,
    ConsumerMember,
    Partitions,
    partitions_of,
)
from ottla_broker.coordinator.group.modern.states import MemberState
from ottla_broker.coordinator.group.modern.topics import SubscribedTopic
from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages import consumer_group_records as wire
from ottla_protocol.schema import Message
from ottla_protocol.versioned import decode_versioned, encode_versioned, peek_version

Key = (
    wire.ConsumerGroupMetadataKey
    | wire.ConsumerGroupPartitionMetadataKey
    | wire.ConsumerGroupMemberMetadataKey
    | wire.ConsumerGroupTargetAssignmentMetadataKey
    | wire.ConsumerGroupTargetAssignmentMemberKey
    | wire.ConsumerGroupCurrentMemberAssignmentKey
    | wire.ConsumerGroupRegularExpressionKey
)
Record = tuple[Key, Message | None]

_KINDS: Final[Mapping[int, tuple[type[Key], type[Message]]]] = {
    3: (wire.ConsumerGroupMetadataKey, wire.ConsumerGroupMetadataValue),
    4: (wire.ConsumerGroupPartitionMetadataKey, wire.ConsumerGroupPartitionMetadataValue),
    5: (wire.ConsumerGroupMemberMetadataKey, wire.ConsumerGroupMemberMetadataValue),
    6: (wire.ConsumerGroupTargetAssignmentMetadataKey, wire.ConsumerGroupTargetAssignmentMetadataValue),
    7: (wire.ConsumerGroupTargetAssignmentMemberKey, wire.ConsumerGroupTargetAssignmentMemberValue),
    8: (wire.ConsumerGroupCurrentMemberAssignmentKey, wire.ConsumerGroupCurrentMemberAssignmentValue),
    16: (wire.ConsumerGroupRegularExpressionKey, wire.ConsumerGroupRegularExpressionValue),
}


def encode(record: Record) -> tuple[bytes, bytes | None]:
    key, value = record
    return encode_versioned(key, key.VERSIONS[0]), None if value is None else encode_versioned(value, 0)


def is_modern(key: bytes) -> bool:
    """Whether a key is one of these records'. Raises ProtocolError for less than a version."""
    return peek_version(key) in _KINDS


def decode(key: bytes, value: bytes | None) -> Record:
    """Raises ProtocolError."""
    kind = _KINDS.get(peek_version(key))
    if kind is None:
        raise ProtocolError(f"no group record has a key of version {peek_version(key)}")
    return decode_versioned(kind[0], key), None if value is None else decode_versioned(kind[1], value)


# Records that change a group


def epoch(group_id: str, value: int) -> Record:
    return wire.ConsumerGroupMetadataKey(group_id=group_id), wire.ConsumerGroupMetadataValue(epoch=value)


def topics(group_id: str, subscribed: Mapping[str, SubscribedTopic]) -> Record:
    value = wire.ConsumerGroupPartitionMetadataValue(
        topics=[
            wire.SubscribedTopic(
                topic_id=topic.topic_id,
                topic_name=name,
                num_partitions=topic.partitions,
                partition_metadata=[
                    wire.PartitionRacks(partition=index, racks=sorted(racks))
                    for index, racks in enumerate(topic.racks)
                    if racks
                ],
            )
            for name, topic in subscribed.items()
        ]
    )
    return wire.ConsumerGroupPartitionMetadataKey(group_id=group_id), value


def member(group_id: str, one: ConsumerMember) -> Record:
    classic = one.classic
    value = wire.ConsumerGroupMemberMetadataValue(
        instance_id=one.instance_id,
        rack_id=one.rack_id,
        client_id=one.client_id,
        client_host=one.client_host,
        subscribed_topic_names=list(one.topics),
        # Kafka writes the empty text for none.
        subscribed_topic_regex=one.regex or "",
        rebalance_timeout_ms=one.rebalance_timeout_ms,
        server_assignor=one.assignor,
        classic_member_metadata=None
        if classic is None
        else wire.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                wire.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )
    return wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=one.member_id), value


def target_epoch(group_id: str, value: int) -> Record:
    key = wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return key, wire.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=value)


def target(group_id: str, member_id: str, partitions: Partitions) -> Record:
    key = wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return key, wire.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=pack(partitions))


def current(group_id: str, one: ConsumerMember) -> Record:
    value = wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=one.epoch,
        previous_member_epoch=one.previous_epoch,
        state=one.state,
        assigned_partitions=pack(one.assigned),
        partitions_pending_revocation=pack(one.revoking),
    )
    return wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one.member_id), value


def regex(group_id: str, text: str, matched: Iterable[str], version: int, now_ms: int) -> Record:
    key = wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=text)
    return key, wire.ConsumerGroupRegularExpressionValue(
        topics=list(matched), version=version, timestamp=now_ms
    )


# Tombstones


def without_regex(group_id: str, text: str) -> Record:
    return wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=text), None


def without_member(group_id: str, member_id: str) -> list[Record]:
    return [
        (wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def without_group(group_id: str, members: Iterable[str], regexes: Iterable[str]) -> list[Record]:
    """Remove a group and what its log has of it, in the order that Kafka's replay needs."""
    names = list(members)
    return [
        *(
            (wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=name), None)
            for name in names
        ),
        *(
            (wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=name), None)
            for name in names
        ),
        (wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *((wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=name), None) for name in names),
        *(without_regex(group_id, text) for text in regexes),
        (wire.ConsumerGroupPartitionMetadataKey(group_id=group_id), None),
        (wire.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


# Values


def pack(partitions: Partitions) -> list[wire.TopicPartitions]:
    return [
        wire.TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in partitions.items()
    ]


def unpack(packed: Iterable[wire.TopicPartitions]) -> Partitions:
    return partitions_of((each.topic_id, each.partitions) for each in packed)


def read_topics(value: wire.ConsumerGroupPartitionMetadataValue) -> dict[str, SubscribedTopic]:
    found = {}
    for topic in value.topics:
        by_index = {each.partition: frozenset(each.racks) for each in topic.partition_metadata}
        racks: tuple[frozenset[str], ...] = ()
        if by_index:
            racks = tuple(by_index.get(index, frozenset()) for index in range(topic.num_partitions))
        found[topic.topic_name] = SubscribedTopic(topic.topic_id, topic.num_partitions, racks)
    return found


def read_classic(value: wire.ConsumerGroupMemberMetadataValue) -> ClassicSide | None:
    classic = value.classic_member_metadata
    if classic is None or not classic.supported_protocols:
        return None
    return ClassicSide(
        classic.session_timeout_ms,
        tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
    )


def read_state(code: int) -> MemberState:
    try:
        return MemberState(code)
    except ValueError:
        return MemberState.UNKNOWN
