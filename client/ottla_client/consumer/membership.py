"""A consumer's side of its group: partitions that come and go, and offsets that are committed.

Offsets are committed automatically every ``auto_commit_interval_ms``, before partitions are given up, and at the
close: only what the application is done with (``Buffer.processed_offset``), never records that are fetched or at work.
Source: Java's ``ConsumerCoordinator``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from time import monotonic

from ..cluster import Cluster
from ..deadline import Deadline
from ..errors import ClientError
from ..group.assignors import Assignor, assignors_named
from ..group.member import GroupMember
from ..group.offsets import OffsetsClient
from ..group.settings import MemberSettings
from ..types import OffsetAndMetadata, TopicPartition
from .buffer import Buffer
from .gate import Gate
from .listener import RebalanceListener, tell
from .positions import Positions
from .settings import ConsumerSettings

log = logging.getLogger("ottla_client")

RETRY_COMMIT = 1.0
"""Seconds until an automatic commit that failed is tried again, where the interval is longer."""


class Membership:
    """The group of one consumer: as a member where it subscribes, else only for its offsets."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        settings: ConsumerSettings,
        strategies: Sequence[str | Assignor],
        positions: Positions,
        buffer: Buffer,
        gate: Gate,
        *,
        assigned: Callable[[Collection[TopicPartition]], None],
        removed: Callable[[Collection[TopicPartition]], None],
        ready: Callable[[], None],
    ) -> None:
        """``assigned`` takes partitions in, ``ready`` says that they may be read, ``removed`` lets them go."""
        self._cluster = cluster
        self._group_id = group_id
        self._settings = settings
        self._strategies = strategies
        self._positions = positions
        self._buffer = buffer
        self._gate = gate
        self._assigned = assigned
        self._removed = removed
        self._ready = ready
        self._offsets = OffsetsClient(cluster, group_id)
        self._member: GroupMember | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._commit_at = 0.0
        self._progress: object = None
        self.listener: RebalanceListener | None = None

    def _new_member(self) -> GroupMember:
        settings = self._settings
        return GroupMember(
            self._cluster,
            self._group_id,
            settings=MemberSettings(
                session_timeout_ms=settings.session_timeout_ms,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                max_poll_interval_ms=settings.max_poll_interval_ms,
                group_instance_id=settings.group_instance_id,
                client_rack=settings.client_rack,
            ),
            assignors=assignors_named(self._strategies),
            callbacks=self,
            offsets=self._offsets,
        )

    # ---- being a member

    def subscribe(self, topics: Collection[str]) -> None:
        """Join the group for these topics, or tell it that they have changed."""
        if self._member is None:
            self._member = self._new_member()
            self._member.subscribe(topics)
            if self._leaving is None or self._leaving.done():
                self._member.start()
        else:
            self._member.subscribe(topics)

    def leave(self) -> None:
        """Leave the group, in the background: its partitions are gone already. A later ``subscribe`` joins anew."""
        member, self._member = self._member, None
        if member is None:
            return
        offsets = self.processed(self._positions.partitions) if self._settings.enable_auto_commit else {}
        before = self._leaving

        async def leaving() -> None:
            if before is not None:
                await before
            deadline = Deadline(self._settings.request_timeout_ms / 1000)
            await self._commit_quietly(member, offsets, deadline)
            await member.close(deadline)
            if self._member is not None and not self._gate.closing:
                self._member.start()

        self._leaving = asyncio.get_running_loop().create_task(leaving())

    def polled(self) -> None:
        """The application polls. Raises what it has to know of its membership."""
        if self._member is not None:
            self._member.polled()

    def tend(self) -> None:
        """To be called several times a second: commits when it is time, and tells that the application lives.

        An application that takes records one by one, or waits in a poll, doesn't call ``polled``.
        """
        progress = self._buffer.progress
        alive = self._gate.inside or progress != self._progress
        if self._member is not None:
            if self._member.failure is not None:
                self._gate.signal()
            elif alive:
                self._member.polled()
        self._progress = progress
        committing = self._committing is not None and not self._committing.done()
        if self._settings.enable_auto_commit and monotonic() >= self._commit_at and not committing:
            offsets = self.processed(self._positions.partitions)
            self._commit_at = monotonic() + self._settings.auto_commit_interval_ms / 1000
            if offsets:
                self._committing = asyncio.get_running_loop().create_task(self._auto_commit(offsets))

    async def close(self, deadline: Deadline, *, commit: bool) -> None:
        """Commit what has been handed out and is done with, if ``commit``, and leave the group."""
        for task in (self._committing, self._leaving):
            if task is not None and not task.done():
                await asyncio.wait((task,), timeout=deadline.left())
                task.cancel()
        if commit and self._settings.enable_auto_commit:
            offsets = self.processed(self._positions.partitions)
            await self._commit_quietly(
                self._member, offsets, deadline.within(self._settings.request_timeout_ms / 1000)
            )
        if self._member is not None:
            await self._member.close(deadline)

    def abandon(self) -> None:
        """Nothing is to be committed any more, whatever happens."""
        self._commit_at = float("inf")

    # ---- offsets

    def processed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What there is to commit of partitions; nothing of those that the cluster says have gone."""
        self._buffer.sync()
        offsets = {}
        for partition in partitions:
            state = self._positions.get(partition)
            if state is None or state.missing_since is not None:
                continue
            processed = self._buffer.processed_offset(state)
            if processed is not None and processed != state.committed:
                offsets[partition] = OffsetAndMetadata(processed, "", state.epoch)
        return offsets

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
        member: GroupMember | None = None,
    ) -> None:
        """Commit, as a member where this is one. Raises as ``GroupMember.commit``, ``OffsetsClient.commit``."""
        member = member or self._member
        if member is None:
            await self._offsets.commit(offsets, deadline)
        else:
            await member.commit(offsets, deadline)
        for partition, committed in offsets.items():
            state = self._positions.get(partition)
            if state is not None:
                state.committed = committed.offset

    async def committed(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed, without offsets that an open transaction may still take back."""
        return await self._offsets.fetch(partitions, deadline, require_stable=self._settings.read_committed)

    async def _auto_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        deadline = Deadline(self._settings.request_timeout_ms / 1000)
        if not await self._commit_quietly(self._member, offsets, deadline):
            self._commit_at = min(self._commit_at, monotonic() + RETRY_COMMIT)

    async def _commit_quietly(
        self,
        member: GroupMember | None,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
    ) -> bool:
        """Commit, and log what goes wrong: records will be handed out again, to whoever gets the partition."""
        if not offsets:
            return True
        try:
            await self.commit(offsets, deadline, member)
        except ClientError as error:
            log.warning("the automatic commit of offsets failed: %s", error)
            return False
        return True

    # ---- what the member tells

    async def on_revoked(self, partitions: Set[TopicPartition]) -> None:
        """Commit and let go, once the application has done with what it has."""
        async with self._gate.held(self._settings.max_poll_interval_ms / 1000) as idle:
            if not idle:
                log.warning("partitions are given up while the application may be at work on their records")
            if self._settings.enable_auto_commit and self._commit_at < float("inf"):
                deadline = Deadline(self._settings.request_timeout_ms / 1000)
                await self._commit_quietly(self._member, self.processed(partitions), deadline)
            try:
                if self.listener is not None:
                    await tell(self.listener.on_partitions_revoked, frozenset(partitions))
            finally:
                self._removed(partitions)

    async def on_assigned(self, partitions: Set[TopicPartition]) -> None:
        """Take in, and find positions when the listener had a chance to say where to begin."""
        self._assigned(partitions)
        states = [state for partition in partitions if (state := self._positions.get(partition)) is not None]
        for state in states:
            state.busy = True
        try:
            if self.listener is not None:
                await tell(self.listener.on_partitions_assigned, frozenset(partitions))
        finally:
            for state in states:
                state.busy = False
            self._ready()

    async def on_lost(self, partitions: Set[TopicPartition]) -> None:
        """Let go at once: others may be reading them by now."""
        self._removed(partitions)
        if self.listener is not None:
            await tell(self.listener.on_partitions_lost, frozenset(partitions))
