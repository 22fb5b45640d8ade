"""A share group, as the coordinator holds it. Kafka: ``ShareGroup``, ``ShareGroupMember``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_broker.coordinator.deadlines import Deadline
from ottla_broker.coordinator.group.metadata_limit import MEMBER, StatedBytes, names_bytes, topics_bytes
from ottla_broker.coordinator.group.modern.membership import MOST_NAMES
from ottla_broker.coordinator.shard import Shard

SHARE_TYPE = "share"
"""The type of these groups in ListGroups, and their protocol type."""

EMPTY, STABLE, DEAD = "Empty", "Stable", "Dead"

Partitions = Mapping[bytes, frozenset[int]]
"""Indexes by topic id."""


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member. It has its part of the target at once: no member has to give up a partition for another."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = field(default_factory=dict)

    @property
    def stated_bytes(self) -> int:
        """The size of the member with all that it has stated, in bytes."""
        names = names_bytes(self.member_id, self.rack_id, self.client_id, self.client_host)
        return MEMBER + names + topics_bytes(self.topics)


@dataclass(eq=False, slots=True)
class SessionTimer(Deadline):
    """The session of one member."""

    group_id: str
    member_id: str


class InitializedTopic(NamedTuple):
    """A topic of which the share coordinator has state, or may have."""

    name: str
    partitions: frozenset[int]


class ShareGroup:
    """Owned by the loop thread.

    Attributes:
        members: by id, in the order of their joining; they change by :meth:`put` and :meth:`remove` alone.
        subscribers: the ids of the members that read each topic, by its name.
        target: who should have which partitions; ``assignment_epoch`` is the group's epoch when it was computed.
        topics_hash: of the subscribed topics when the target was computed.
        stated: what the members have stated, in bytes.
        initialized: topics with state, by id.
        end_offset: the end of the log after the group's last record: answers wait until it is committed.
        is_initializing: the share coordinator is making state for new partitions.
    """

    def __init__(self, group_id: str, shard: Shard) -> None:
        self.group_id = group_id
        self.shard = shard
        self.epoch = 0
        self.topics_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.subscribers: dict[str, dict[str, None]] = {}
        self.stated = StatedBytes(group_id)
        self.target: dict[str, Partitions] = {}
        self.initialized: dict[bytes, InitializedTopic] = {}
        self.end_offset = 0
        self.is_dead = False
        self.is_initializing = False
        self.timers: dict[str, SessionTimer] = {}

    @property
    def state(self) -> str:
        if self.is_dead:
            return DEAD
        return STABLE if self.members else EMPTY

    @property
    def is_empty(self) -> bool:
        return not self.members

    def put(self, member: ShareMember) -> None:
        """Add a member, or replace the one of its id."""
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._count(before, member)

    def remove(self, member_id: str) -> None:
        self._count(self.members.pop(member_id, None), None)

    def _count(self, before: ShareMember | None, after: ShareMember | None) -> None:
        if before is not None:
            self.stated.add(-before.stated_bytes)
        if after is not None:
            self.stated.add(after.stated_bytes)
        old, new = () if before is None else before.topics, () if after is None else after.topics
        if before is not None and old != new:
            for name in set(old):
                readers = self.subscribers[name]
                readers.pop(before.member_id, None)
                if not readers:
                    del self.subscribers[name]
        if after is not None and old != new:
            for name in new:
                self.subscribers.setdefault(name, {})[after.member_id] = None

    def may_name(self, topics: Iterable[str]) -> bool:
        """Whether members may name these topics beside those that members name already."""
        return len(self.subscribers) + sum(name not in self.subscribers for name in topics) <= MOST_NAMES
