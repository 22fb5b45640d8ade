"""The leader's part in a group: it divides the partitions, and watches their number."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla_protocol.messages.join_group import JoinGroupResponseMember
from ottla_protocol.messages.sync_group import SyncGroupRequestAssignment

from ..deadline import Deadline
from .assignors import Assignor
from .consumer_protocol import assignment_bytes, read_subscription

if TYPE_CHECKING:
    from ..cluster import Cluster

_log = logging.getLogger("ottla_client")


class Leader:
    """Used while the member leads its group, which may change with each rebalance."""

    def __init__(self, cluster: Cluster, changed: Callable[[], None]) -> None:
        """``changed`` is called when partitions were added or removed since the assignment."""
        self._cluster = cluster
        self._changed = changed
        self._topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    async def assign(
        self,
        assignor: Assignor,
        members: Iterable[JoinGroupResponseMember],
        deadline: Deadline,
        *,
        skip: bool,
    ) -> list[SyncGroupRequestAssignment]:
        """All members' assignments for SyncGroup; watches the topics from now on.

        With ``skip`` the coordinator keeps the assignment, because this leader is a static member that came back
        (KIP-814). Topics that don't exist are left out. Raises ProtocolError for an invalid subscription, and
        RequestTimeoutError if the topics can't be looked up.
        """
        subscriptions = {
            each.member_id: read_subscription(each.metadata, each.group_instance_id) for each in members
        }
        topics = frozenset(topic for each in subscriptions.values() for topic in each.topics)
        self._watch(topics)
        if topics:
            await self._cluster.fetch_topics(topics, deadline)
        counts = self._counts = self._count()
        if skip:
            return []
        missing = sorted(topics - counts.keys())
        if missing:
            _log.warning("members subscribe to topics that don't exist: %s", ", ".join(missing))
        assignment = assignor.assign(counts, subscriptions)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=assignment_bytes(partitions))
            for member, partitions in assignment.items()
        ]

    def outdated(self) -> bool:
        """Whether partitions were added or removed since the assignment."""
        return self._counts is not None and self._counts != self._count()

    def resign(self) -> None:
        """Stop watching: this member doesn't lead."""
        self._counts = None
        self._watch(frozenset())

    def _watch(self, topics: frozenset[str]) -> None:
        self._cluster.interest(topics)
        self._cluster.disinterest(self._topics)
        self._topics = topics
        if topics and self._unsubscribe is None:
            self._unsubscribe = self._cluster.on_change(self._notice)
        elif not topics and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _notice(self) -> None:
        if self.outdated():
            self._changed()

    def _count(self) -> dict[str, int]:
        found = ((name, self._cluster.topic(name)) for name in self._topics)
        return {name: len(topic.partitions) for name, topic in found if topic is not None}
