"""A consumer as a member of its group: partitions that come and go. Source: Java's ``ConsumerCoordinator``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence, Set
from inspect import isawaitable

from ..cluster import Cluster
from ..deadline import Deadline
from ..group.assignors import Assignor, assignors_named
from ..group.consumer_member import ConsumerProtocolMember
from ..group.member import GroupMember
from ..group.settings import MemberSettings
from ..types import TopicPartition
from .buffer import Buffer
from .listener import RebalanceListener
from .offset_commits import CommittingMember, OffsetCommits
from .poll_gate import PollGate
from .positions import Positions
from .settings import ConsumerSettings

_log = logging.getLogger("ottla_client")


class Membership:
    """Joins the group when the consumer subscribes to topics."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        settings: ConsumerSettings,
        strategies: Sequence[str | Assignor],
        positions: Positions,
        buffer: Buffer,
        gate: PollGate,
        commits: OffsetCommits,
        *,
        assigned: Callable[[Collection[TopicPartition]], None],
        removed: Callable[[Collection[TopicPartition]], None],
        ready: Callable[[], None],
    ) -> None:
        """``assigned`` adds partitions, ``ready`` is called when they may be read, ``removed`` drops them."""
        self._cluster = cluster
        self._group_id = group_id
        self._settings = settings
        self._strategies = strategies
        self._positions = positions
        self._buffer = buffer
        self._gate = gate
        self._commits = commits
        self._assigned = assigned
        self._removed = removed
        self._ready = ready
        self._leaving: asyncio.Task[None] | None = None
        self._progress: object = None
        self.listener: RebalanceListener | None = None
        self.calling = False
        """Whether a function of the listener is running. It may use the consumer, also during a close."""

    @property
    def _member(self) -> CommittingMember | None:
        return self._commits.member

    def _new_member(self) -> CommittingMember:
        settings = self._settings
        member_settings = MemberSettings(
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            group_instance_id=settings.group_instance_id,
            client_rack=settings.client_rack,
        )
        if settings.group_protocol == "consumer":
            return ConsumerProtocolMember(
                self._cluster,
                self._group_id,
                settings=member_settings,
                assignor=settings.group_remote_assignor,
                callbacks=self,
                offsets=self._commits.client,
            )
        return GroupMember(
            self._cluster,
            self._group_id,
            settings=member_settings,
            assignors=assignors_named(self._strategies),
            callbacks=self,
            offsets=self._commits.client,
        )

    def subscribe(self, topics: Collection[str]) -> None:
        """Join the group for these topics, or join again because they have changed."""
        member = self._member
        if member is not None:
            member.subscribe(topics)
            return
        member = self._commits.member = self._new_member()
        member.subscribe(topics)
        if self._leaving is None or self._leaving.done():
            member.start()

    def leave(self) -> None:
        """Leave the group in the background; a later ``subscribe`` joins again."""
        member, self._commits.member = self._commits.member, None
        if member is None:
            return
        offsets = self._commits.processed(self._positions.partitions)
        before = self._leaving

        async def leaving() -> None:
            if before is not None:
                await before
            deadline = Deadline(self._settings.request_timeout_ms / 1000)
            await self._commits.commit_processed(offsets, deadline, member)
            await member.close(deadline)
            if self._member is not None and not self._gate.closing:
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
        progress = self._buffer.progress
        alive = self._gate.inside or progress != self._progress
        self._progress = progress
        if self._member is not None:
            if self._member.failure is not None:
                self._gate.signal()
            elif alive:
                self._member.polled()

    async def close(self, deadline: Deadline) -> None:
        """Commit what the application is done with, and leave the group."""
        await self._commits.stop(deadline)
        if self._leaving is not None and not self._leaving.done():
            await asyncio.wait((self._leaving,), timeout=deadline.left())
            self._leaving.cancel()
        await self._commits.commit_processed(self._commits.processed(self._positions.partitions), deadline)
        if self._member is not None:
            await self._member.close(deadline)

    async def on_revoked(self, partitions: Set[TopicPartition]) -> None:
        """Commit and give the partitions up, once the application is done with their records."""
        async with self._gate.held(self._settings.max_poll_interval_ms / 1000) as idle:
            if not idle:
                _log.warning("partitions are given up while the application may be processing their records")
            await self._commits.commit_processed(self._commits.processed(partitions))
            try:
                if self.listener is not None:
                    await self._call(self.listener.on_partitions_revoked, partitions)
            finally:
                self._commits.on_revoked(partitions)
                self._removed(partitions)

    async def on_assigned(self, partitions: Set[TopicPartition]) -> None:
        """Add the partitions; their positions are looked up after the listener could set them."""
        self._assigned(partitions)
        states = [state for partition in partitions if (state := self._positions.get(partition)) is not None]
        for state in states:
            state.busy = state.withheld = True
        try:
            if self.listener is not None:
                await self._call(self.listener.on_partitions_assigned, partitions)
        finally:
            for state in states:
                state.busy = state.withheld = False
            self._ready()

    async def on_lost(self, partitions: Set[TopicPartition]) -> None:
        """Drop the partitions at once: other members may be reading them."""
        self._commits.on_revoked(partitions)
        self._removed(partitions)
        if self.listener is not None:
            await self._call(self.listener.on_partitions_lost, partitions)

    async def _call(
        self,
        function: Callable[[frozenset[TopicPartition]], Awaitable[None] | None],
        partitions: Set[TopicPartition],
    ) -> None:
        """Call a listener's function, and await it if it is async."""
        self.calling = True
        try:
            result = function(frozenset(partitions))
            if isawaitable(result):
                await result
        finally:
            self.calling = False
