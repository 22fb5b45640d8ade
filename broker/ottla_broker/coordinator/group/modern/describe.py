"""A group of the consumer protocol as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup
from ottla_broker.coordinator.group.modern.member import ConsumerMember, Partitions
from ottla_broker.coordinator.group.modern.topics import TopicsView
from ottla_protocol.errors import KafkaError

NamedPartitions = Sequence[tuple[bytes, str, list[int]]]
"""Topic id, name, and indexes."""


class MemberDescription(NamedTuple):
    """A member, the partitions it has, and those of its target; without topics that are deleted."""

    member: ConsumerMember
    assigned: NamedPartitions
    target: NamedPartitions


class ConsumerGroupDescription(NamedTuple):
    """A group, or why it can't be shown."""

    error: KafkaError | None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Iterable[MemberDescription] = ()
    """Made as they are asked for: one takes as long as it has partitions. What is shown is the group as it was."""


def describe_group(
    group: ConsumerGroup, default_assignor: str, topics: TopicsView
) -> ConsumerGroupDescription:
    membership = group.membership

    def named(partitions: Partitions) -> NamedPartitions:
        found = []
        for topic_id, indexes in partitions.items():
            name = topics.name_of(topic_id)
            if name is not None:
                found.append((topic_id, name, sorted(indexes)))
        return found

    return ConsumerGroupDescription(
        None,
        group.state.value,
        membership.epoch,
        membership.assignment_epoch,
        membership.preferred_assignor() or default_assignor,
        (
            MemberDescription(member, named(member.assigned), named(membership.target.get(member_id, {})))
            for member_id, member in membership.members.items()
        ),
    )
