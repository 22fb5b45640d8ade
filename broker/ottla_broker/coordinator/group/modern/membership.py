"""The sum of one group's records: its epochs, its members, its target, who has which partition.

The log is made of the records in ``records.py``; this is their sum, and changes by nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, KeysView
from copy import copy
from dataclasses import replace
from typing import Final, NamedTuple, cast

from ottla_broker.coordinator.group.modern import records
from ottla_broker.coordinator.group.modern.member import ConsumerMember, Partitions
from ottla_broker.coordinator.group.modern.records import Record
from ottla_broker.coordinator.group.modern.states import LEAVE_EPOCH, ModernState
from ottla_broker.coordinator.group.modern.topics import SubscribedTopic
from ottla_protocol.messages import consumer_group_records as wire
from ottla_protocol.schema import Message

MOST_NAMES: Final = 20_000
"""Topics that the members of a group may name: they are all looked up whenever the group changes."""


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, and in which version of the metadata."""

    topics: tuple[str, ...]
    version: int


class Membership:
    """One group as its records describe it.

    Attributes:
        epoch: rises when members, their subscriptions or their topics change.
        assignment_epoch: the group's epoch for which ``target`` was computed.
        static_members: member ids by instance id.
        target: by member id.
        topics: the topics it consumes, by name, as they were when the target was computed.
        owners: the member that has a partition, or was asked to give it up and hasn't confirmed.
        stated_bytes: what all members take with what they have stated.
        classic_protocols: how many members of the classic protocol support each of its assignors.
    """

    def __init__(self) -> None:
        self.exists = False
        self.epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        self.topics: dict[str, SubscribedTopic] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[tuple[bytes, int], str] = {}
        self.stated_bytes = 0
        self.classic_members = 0
        self.classic_protocols: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self._regex_users: Counter[str] = Counter()
        self._assignors: Counter[str] = Counter()

    def copy(self) -> Membership:
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                setattr(other, name, copy(value))
        return other

    # Reading

    @property
    def state(self) -> ModernState:
        if not self.members:
            return ModernState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ModernState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ModernState.STABLE
        return ModernState.RECONCILING

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        return (topic_id, partition) not in self.owners

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    @property
    def used_regexes(self) -> KeysView[str]:
        return self._regex_users.keys()

    def subscribed_names(self) -> set[str]:
        """The topics that some member subscribes to, by name or by what its regular expression matched."""
        found = set(self._names)
        for text in self._regex_users:
            if text in self.regexes:
                found.update(self.regexes[text].topics)
        return found

    def may_name(self, topics: Iterable[str]) -> bool:
        """Whether members may name these topics beside those that members name already."""
        return len(self._names) + sum(name not in self._names for name in topics) <= MOST_NAMES

    def names_of(self, member: ConsumerMember) -> Iterable[str]:
        if member.regex is None or member.regex not in self.regexes:
            return member.topics
        return {*member.topics, *self.regexes[member.regex].topics}

    def preferred_assignor(self) -> str | None:
        """The assignor that most of the members that name one prefer."""
        found = self._assignors.most_common(1)
        return found[0][0] if found else None

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether each partition that the member still lacks belongs to another."""
        for topic_id, indexes in self.target.get(member.member_id, {}).items():
            has = member.assigned.get(topic_id, frozenset())
            if any(index not in has and not self.is_free(topic_id, index) for index in indexes):
                return True
        return False

    # Changing

    def apply(self, record: Record) -> None:
        """Apply one record. Records of a member may come in any order: compaction keeps only the last of each."""
        key, value = record
        if isinstance(key, wire.ConsumerGroupMetadataKey):
            self.exists = value is not None
            self.epoch = 0 if value is None else cast(wire.ConsumerGroupMetadataValue, value).epoch
        elif isinstance(key, wire.ConsumerGroupPartitionMetadataKey):
            found = cast("wire.ConsumerGroupPartitionMetadataValue | None", value)
            self.topics = {} if found is None else records.read_topics(found)
        elif isinstance(key, wire.ConsumerGroupTargetAssignmentMetadataKey):
            at = cast("wire.ConsumerGroupTargetAssignmentMetadataValue | None", value)
            self.assignment_epoch = 0 if at is None else at.assignment_epoch
        elif isinstance(key, wire.ConsumerGroupTargetAssignmentMemberKey):
            if value is None:
                self.target.pop(key.member_id, None)
            else:
                self.target[key.member_id] = records.unpack(
                    cast(wire.ConsumerGroupTargetAssignmentMemberValue, value).topic_partitions
                )
        elif isinstance(key, wire.ConsumerGroupRegularExpressionKey):
            if value is None:
                self.regexes.pop(key.regular_expression, None)
            else:
                resolved = cast(wire.ConsumerGroupRegularExpressionValue, value)
                self.regexes[key.regular_expression] = ResolvedRegex(tuple(resolved.topics), resolved.version)
        else:
            self._apply_to_member(key, value)

    def _apply_to_member(
        self,
        key: wire.ConsumerGroupMemberMetadataKey | wire.ConsumerGroupCurrentMemberAssignmentKey,
        value: Message | None,
    ) -> None:
        before = self.members.get(key.member_id)
        if value is None:
            if before is None:
                return
            if isinstance(key, wire.ConsumerGroupMemberMetadataKey):
                self._replace(before, None)
            else:
                gone = replace(before.without_partitions(), epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH)
                self._replace(before, gone)
            return
        member = ConsumerMember(key.member_id) if before is None else before
        if isinstance(key, wire.ConsumerGroupMemberMetadataKey):
            self._replace(before, _with_metadata(member, cast(wire.ConsumerGroupMemberMetadataValue, value)))
        else:
            self._replace(
                before, _with_assignment(member, cast(wire.ConsumerGroupCurrentMemberAssignmentValue, value))
            )

    def _replace(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        if before is not None:
            self._count(before, -1)
            if (
                before.instance_id is not None
                and self.static_members.get(before.instance_id) == before.member_id
            ):
                del self.static_members[before.instance_id]
            owners = self.owners
            for partition in _all_partitions(before):
                if owners.get(partition) == before.member_id:
                    del owners[partition]
            if after is None:
                del self.members[before.member_id]
        if after is not None:
            self._count(after, 1)
            if after.instance_id is not None:
                self.static_members[after.instance_id] = after.member_id
            for partition in _all_partitions(after):
                self.owners[partition] = after.member_id
            self.members[after.member_id] = after

    def _count(self, member: ConsumerMember, by: int) -> None:
        self.stated_bytes += by * member.stated_bytes
        for name in member.topics:
            _add(self._names, name, by)
        if member.regex is not None:
            _add(self._regex_users, member.regex, by)
        if member.assignor is not None:
            _add(self._assignors, member.assignor, by)
        if member.classic is not None:
            self.classic_members += by
            for name, _ in member.classic.protocols:
                _add(self.classic_protocols, name, by)


def _add(counter: Counter[str], key: str, by: int) -> None:
    counter[key] += by
    if not counter[key]:
        del counter[key]


def _all_partitions(member: ConsumerMember) -> Iterable[tuple[bytes, int]]:
    for partitions in (member.assigned, member.revoking):
        for topic_id, indexes in partitions.items():
            for index in indexes:
                yield topic_id, index


def _with_metadata(member: ConsumerMember, value: wire.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=tuple(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or None,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=records.read_classic(value),
    )


def _with_assignment(
    member: ConsumerMember, value: wire.ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerMember:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=records.read_state(value.state),
        assigned=records.unpack(value.assigned_partitions),
        revoking=records.unpack(value.partitions_pending_revocation),
    )
