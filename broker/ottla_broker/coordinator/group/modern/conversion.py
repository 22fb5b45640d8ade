"""Converts a classic group to a group of the consumer protocol, and the other way round. Pure functions.

Kafka: ``ConsumerGroup.fromClassicGroup``, ``ClassicGroup.fromConsumerGroup``. A group keeps its members, their
partitions and its committed offsets. The generation becomes the epoch, and the epoch the generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla_broker.coordinator.group.group import PROTOCOL_TYPE, Group, count_topics
from ottla_broker.coordinator.group.modern import records
from ottla_broker.coordinator.group.modern.member import (
    ClassicSide,
    ConsumerMember,
    Partitions,
    partitions_of,
)
from ottla_broker.coordinator.group.modern.membership import MOST_NAMES, Membership
from ottla_broker.coordinator.group.modern.records import Record
from ottla_broker.coordinator.group.modern.topics import TopicsView
from ottla_broker.coordinator.group.offsets import OffsetTable
from ottla_broker.coordinator.shard import Shard
from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages import consumer_protocol as wire
from ottla_protocol.messages.group_records import GroupMetadataValue, MemberMetadata
from ottla_protocol.versioned import peek_version

MOST_BYTES: Final = 512 * 1024
"""What one classic member's metadata may have to be read, and all of those in a group that changes its protocol."""
_NEWEST_ASSIGNMENT = wire.ConsumerProtocolAssignment.VERSIONS[1]


class CannotConvert(Exception):
    """The group can't become one of the other kind; the message says why."""


def read_subscription(data: bytes) -> wire.ConsumerProtocolSubscription:
    """A consumer's subscription in JoinGroup. Raises ProtocolError.

    Some clients state a later version than they write: then what every version begins with is read.
    """
    if len(data) > MOST_BYTES:
        raise ProtocolError(f"a subscription has {len(data)} bytes, and {MOST_BYTES} are allowed")
    if count_topics(data) > MOST_NAMES:
        raise ProtocolError(f"a subscription names more than {MOST_NAMES} topics")
    version = peek_version(data)
    if version < 0:
        raise ProtocolError("a subscription has a negative version")
    newest = wire.ConsumerProtocolSubscription.VERSIONS[1]
    try:
        return wire.ConsumerProtocolSubscription.decode(data, min(version, newest), 2)
    except ProtocolError:
        return wire.ConsumerProtocolSubscription.decode(data, 0, 2)


def named_partitions(topics: TopicsView, named: list[wire.TopicPartition]) -> dict[bytes, frozenset[int]]:
    """Partitions by topic id; of topics that exist."""
    found = []
    for each in named:
        topic = topics.find(each.topic)
        if topic is not None:
            found.append((topic.topic_id, [index for index in each.partitions if index < topic.partitions]))
    return partitions_of(found)


def assignment_bytes(topics: TopicsView, partitions: Partitions, subscription: bytes) -> bytes:
    """A member's partitions for SyncGroup, in the version of its subscription."""
    assigned = []
    for topic_id, indexes in partitions.items():
        name = topics.name_of(topic_id)
        if name is not None:
            assigned.append(wire.TopicPartition(topic=name, partitions=sorted(indexes)))
    version = min(max(peek_version(subscription), 0), _NEWEST_ASSIGNMENT)
    return wire.encode_assignment(wire.ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def upgraded(group: Group, topics: TopicsView) -> list[Record]:
    """The records of a classic group as a group of the consumer protocol. Raises CannotConvert."""
    protocol = group.protocol_name or group.select_protocol()
    if group.protocol_type != PROTOCOL_TYPE or protocol is None:
        raise CannotConvert(
            f"its members use the protocol type {group.protocol_type!r}, not {PROTOCOL_TYPE!r}"
        )
    stated = sum(len(each.metadata(protocol)) + len(each.assignment) for each in group.members.values())
    if stated > MOST_BYTES:
        raise CannotConvert(
            f"its members' subscriptions and assignments have {stated} bytes, and {MOST_BYTES} can be converted"
        )
    members = []
    names: set[str] = set()
    owners: dict[tuple[bytes, int], str] = {}
    for classic in group.members.values():
        try:
            subscription = read_subscription(classic.metadata(protocol))
            assigned = (
                named_partitions(topics, wire.decode_assignment(classic.assignment).assigned_partitions)
                if classic.assignment
                else {}
            )
        except ProtocolError as error:
            raise CannotConvert(
                f"the metadata of member {classic.member_id} is malformed: {error}"
            ) from error
        names.update(subscription.topics)
        if len(names) > MOST_NAMES:
            raise CannotConvert(f"its members subscribe to more than {MOST_NAMES} topics")
        for topic_id, indexes in assigned.items():
            for index in indexes:
                other = owners.setdefault((topic_id, index), classic.member_id)
                if other != classic.member_id:
                    name = topics.name_of(topic_id)
                    raise CannotConvert(
                        f"its assignor gave partition {index} of {name} to {other} and to {classic.member_id}"
                    )
        chosen = [each for each in classic.protocols if each[0] == protocol]
        others = [each for each in classic.protocols if each[0] != protocol]
        members.append(
            ConsumerMember(
                classic.member_id,
                instance_id=classic.instance_id,
                rack_id=subscription.rack_id,
                client_id=classic.client_id,
                client_host=classic.client_host,
                rebalance_timeout_ms=classic.rebalance_timeout_ms,
                topics=tuple(sorted(set(subscription.topics))),
                classic=ClassicSide(classic.session_timeout_ms, tuple(chosen + others)),
                epoch=group.generation,
                previous_epoch=group.generation,
                assigned=assigned,
            )
        )
    group_id = group.group_id
    return [
        *(records.member(group_id, each) for each in members),
        records.epoch(group_id, group.generation),
        *(records.target(group_id, each.member_id, each.assigned) for each in members),
        records.target_epoch(group_id, group.generation),
        *(records.current(group_id, each) for each in members),
    ]


def is_all_classic(membership: Membership) -> bool:
    """Whether there are members, and all of them use the classic protocol."""
    return 0 < membership.classic_members == len(membership.members)


def downgraded(
    group_id: str,
    shard: Shard,
    membership: Membership,
    topics: TopicsView,
    offsets: OffsetTable,
    now_ms: int,
    rebalances: bool,
) -> Group:
    """A group of members that all use the classic protocol, as a stable classic group.

    ``rebalances``: it has no leader, and the coordinator that loads it rebalances it.
    """
    sides: Mapping[str, ClassicSide] = {
        member_id: member.classic
        for member_id, member in membership.members.items()
        if member.classic is not None
    }
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=membership.epoch,
        protocol=next(iter(sides.values())).name,
        leader=None if rebalances else next(iter(membership.members)),
        current_state_timestamp=now_ms,
        members=[
            MemberMetadata(
                member_id=member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=sides[member_id].session_timeout_ms,
                subscription=sides[member_id].subscription,
                assignment=assignment_bytes(topics, member.assigned, sides[member_id].subscription),
            )
            for member_id, member in membership.members.items()
        ],
    )
    group = Group.loaded(group_id, shard, value, offsets)
    for member_id, classic in group.members.items():
        side = sides[member_id]
        group.update(classic, side.protocols, classic.rebalance_timeout_ms, side.session_timeout_ms)
    group.protocol_name = group.select_protocol()
    group.refresh_subscribed()
    return group
