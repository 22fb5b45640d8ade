"""A consumer as a member of its group: partitions that come and go. Source: Java's ``ConsumerCoordinator``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence, Set
from dataclasses import dataclass
from inspect import isawaitable

from ..cluster import Cluster
from ..deadline import Deadline
from ..group.assignors import Assignor, assignors_named
from ..group.member import GroupMember
from ..types import TopicPartition
from .buffer import Buffer
from .offset_commits import OffsetCommits
from .poll_gate import PollGate
from .positions import Positions
from .settings import ConsumerSettings

_log = logging.getLogger("ottla_client")


class RebalanceListener:
    """Called when partitions are assigned and revoked. Override what you need, with plain or async functions.

    The consumer's own task calls them while the application is inside a poll or processes no records. They may use the
    consumer: commit in ``on_partitions_revoked``, seek in ``on_partitions_assigned``. The next poll raises their
    exceptions. Source: Java's ``ConsumerRebalanceListener``.
    """

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """The consumer gives these up when the call returns."""

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These are new. Called after each rebalance, also without any; they are read when the call returns."""

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """Other members may have these already, so commits fail. Calls ``on_partitions_revoked`` by default."""
        return self.on_partitions_revoked(lost)


async def _call(
    function: Callable[[frozenset[TopicPartition]], Awaitable[None] | None],
    partitions: frozenset[TopicPartition],
) -> None:
    """Call a listener's function, and await it if it is async."""
    result = function(partitions)
    if isawaitable(result):
        await result


@dataclass(eq=False)
class Membership:
    """Joins the group when the consumer subscribes to topics."""

    cluster: Cluster
    group_id: str
    settings: ConsumerSettings
    strategies: Sequence[str | Assignor]
    positions: Positions
    buffer: Buffer
    gate: PollGate
    commits: OffsetCommits
    assigned: Callable[[Collection[TopicPartition]], None]
    """Adds partitions."""
    removed: Callable[[Collection[TopicPartition]], None]
    """Drops partitions."""
    ready: Callable[[], None]
    """Called when assigned partitions may be read."""
    listener: RebalanceListener | None = None
    _leaving: asyncio.Task[None] | None = None
    _progress: object = None

    @property
    def _member(self) -> GroupMember | None:
        return self.commits.member

    def subscribe(self, topics: Collection[str]) -> None:
        """Join the group for these topics, or join again because they have changed."""
        member = self._member
        if member is not None:
            member.subscribe(topics)
            return
        member = self.commits.member = GroupMember(
            self.cluster,
            self.group_id,
            settings=self.settings,
            assignors=assignors_named(self.strategies),
            callbacks=self,
            offsets=self.commits.client,
        )
        member.subscribe(topics)
        if self._leaving is None or self._leaving.done():
            member.start()

    def leave(self) -> None:
        """Leave the group in the background; a later ``subscribe`` joins again."""
        member, self.commits.member = self.commits.member, None
        if member is None:
            return
        offsets = self.commits.processed(self.positions.partitions)
        before = self._leaving

        async def leaving() -> None:
            if before is not None:
                await before
            deadline = Deadline(self.settings.request_timeout)
            await self.commits.commit_processed(offsets, deadline, member)
            await member.close(deadline)
            if self._member is not None and not self.gate.closing:
                self._member.start()

        self._leaving = asyncio.get_running_loop().create_task(leaving())

    def polled(self) -> None:
        """The application polls. Raises the member's failure, if it has one."""
        if self._member is not None:
            self._member.polled()

    def tick(self) -> None:
        """Notice that the application lives; called several times a second.

        An application that takes records one by one, or waits in a poll, doesn't call ``polled``.
        """
        progress = self.buffer.progress
        alive = self.gate.inside or progress != self._progress
        self._progress = progress
        if self._member is not None:
            if self._member.failure is not None:
                self.gate.signal()
            elif alive:
                self._member.polled()

    async def close(self, deadline: Deadline) -> None:
        """Commit what the application is done with, and leave the group."""
        await self.commits.stop(deadline)
        if self._leaving is not None and not self._leaving.done():
            await asyncio.wait((self._leaving,), timeout=deadline.left())
            self._leaving.cancel()
        await self.commits.commit_processed(self.commits.processed(self.positions.partitions), deadline)
        if self._member is not None:
            await self._member.close(deadline)

    async def on_revoked(self, partitions: Set[TopicPartition]) -> None:
        """Commit and give the partitions up, once the application is done with their records."""
        async with self.gate.held(self.settings.max_poll_interval_ms / 1000) as idle:
            if not idle:
                _log.warning("partitions are given up while the application may be processing their records")
            await self.commits.commit_processed(self.commits.processed(partitions))
            try:
                if self.listener is not None:
                    await _call(self.listener.on_partitions_revoked, frozenset(partitions))
            finally:
                self.removed(partitions)

    async def on_assigned(self, partitions: Set[TopicPartition]) -> None:
        """Add the partitions; their positions are looked up after the listener could set them."""
        self.assigned(partitions)
        states = [state for partition in partitions if (state := self.positions.get(partition)) is not None]
        for state in states:
            state.busy = True
        try:
            if self.listener is not None:
                await _call(self.listener.on_partitions_assigned, frozenset(partitions))
        finally:
            for state in states:
                state.busy = False
            self.ready()

    async def on_lost(self, partitions: Set[TopicPartition]) -> None:
        """Drop the partitions at once: other members may be reading them."""
        self.removed(partitions)
        if self.listener is not None:
            await _call(self.listener.on_partitions_lost, frozenset(partitions))
