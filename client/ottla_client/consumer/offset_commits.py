"""Which offsets a consumer commits, and when: nothing else decides that.

An automatic commit has the offsets up to which the application has processed the records (``processed``). It is due
every ``auto_commit_interval_ms``, before partitions are given up, and at the close. ``commit()`` without offsets
commits all records that were handed out (``handed_out``). Source: Java's ``ConsumerCoordinator``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from time import monotonic
from typing import TypeAlias

from ottla_protocol.errors import ErrorCode

from ..deadline import Deadline
from ..errors import ClientError, CommitFailedError
from ..group import ConsumerProtocolMember, GroupMember
from ..group.offsets import OffsetsClient
from ..types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .buffer import Buffer
from .positions import Positions
from .settings import ConsumerSettings

_log = logging.getLogger("ottla_client")

CommittingMember: TypeAlias = GroupMember | ConsumerProtocolMember
"""A member of a group that has offsets."""

RETRY_COMMIT = 1.0
"""Seconds until an automatic commit that failed is tried again, where the interval is longer."""


class OffsetCommits:
    """One consumer's commits: as ``member``, or from outside the group without one."""

    def __init__(
        self, offsets: OffsetsClient, settings: ConsumerSettings, positions: Positions, buffer: Buffer
    ) -> None:
        self.client = offsets
        self.member: CommittingMember | None = None
        self._settings = settings
        self._positions = positions
        self._buffer = buffer
        self._automatic = settings.enable_auto_commit
        self._running: asyncio.Task[None] | None = None
        self._due_at = 0.0
        self._revoked_in_transaction = False
        """Whether ``transaction_offsets`` lacks records that were handed out: their partitions have been revoked."""

    def processed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets of an automatic commit, without those already committed and those of deleted partitions."""
        if not self._automatic:
            return {}
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

    def handed_out(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of all partitions, for a commit of all records that were handed out."""
        self._buffer.sync()
        return {
            state.partition: OffsetAndMetadata(state.position, "", state.epoch)
            for state in self._positions
            if state.position is not None
        }

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member, or the group alone without one. Raises GroupError while the member is not joined."""
        if self.member is None:
            return ConsumerGroupMetadata(self.client.group_id)
        return self.member.joined_metadata()

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Note whether records of revoked partitions were handed out; call it before the partitions are removed."""
        self._buffer.sync()
        states = [state for partition in partitions if (state := self._positions.get(partition)) is not None]
        self._revoked_in_transaction |= any(state.unsettled for state in states)

    def discard_revoked(self) -> None:
        """Forget revoked partitions: the application begins again at the committed offsets."""
        self._revoked_in_transaction = False

    def transaction_offsets(self) -> tuple[ConsumerGroupMetadata, dict[TopicPartition, OffsetAndMetadata]]:
        """The member, and the positions of all partitions; without a position, the group alone.

        Raises CommitFailedError once if partitions were revoked since the last call, after records of theirs were
        handed out: their transaction must not be committed without their offsets. Raises GroupError while the member is
        not joined.
        """
        offsets = self.handed_out()
        if self._revoked_in_transaction:
            self._revoked_in_transaction = False
            raise CommitFailedError(
                ErrorCode.ILLEGAL_GENERATION,
                f"group {self.client.group_id!r}: nothing was committed: the group has taken partitions away after"
                " records of theirs were handed out, and other members read these again; abort the transaction",
            )
        if not offsets:
            return ConsumerGroupMetadata(self.client.group_id), {}
        member = self.group_metadata()
        for partition in offsets:
            state = self._positions.get(partition)
            assert state is not None
            state.unsettled = False
        return member, offsets

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
        member: CommittingMember | None = None,
    ) -> None:
        """Commit these offsets. Raises the errors of ``GroupMember.commit`` or ``OffsetsClient.commit``."""
        member = member or self.member
        since = monotonic()
        if member is None:
            await self.client.commit(offsets, deadline)
        else:
            await member.commit(offsets, deadline)
        now = monotonic()
        self._buffer.meters.time("commit-latency", now - since, now)
        for partition, committed in offsets.items():
            state = self._positions.get(partition)
            if state is not None:
                state.committed = committed.offset

    async def commit_processed(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline | None = None,
        member: CommittingMember | None = None,
    ) -> bool:
        """Commit the offsets from ``processed``; a failure is only logged. Returns whether it succeeded."""
        if not offsets:
            return True
        limit = self._settings.request_timeout_ms / 1000
        try:
            await self.commit(
                offsets, Deadline(limit) if deadline is None else deadline.within(limit), member
            )
        except ClientError as error:
            _log.warning("the automatic commit of offsets failed: %s", error)
            return False
        return True

    def commit_if_due(self) -> None:
        """Start the next automatic commit when its time has come."""
        if not self._automatic or monotonic() < self._due_at:
            return
        if self._running is not None and not self._running.done():
            return
        self._due_at = monotonic() + self._settings.auto_commit_interval_ms / 1000
        offsets = self.processed(self._positions.partitions)
        if offsets:
            self._running = asyncio.get_running_loop().create_task(self._commit_now(offsets))

    async def _commit_now(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if not await self.commit_processed(offsets):
            self._due_at = min(self._due_at, monotonic() + RETRY_COMMIT)

    def abandon(self) -> None:
        """Commit nothing automatically from now on."""
        self._automatic = False

    async def stop(self, deadline: Deadline) -> None:
        """Wait for the automatic commit that is running."""
        if self._running is not None and not self._running.done():
            await asyncio.wait((self._running,), timeout=deadline.left())
            self._running.cancel()

    async def committed(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's offsets; with read_committed, without those that an open transaction may still take back."""
        return await self.client.fetch(partitions, deadline, require_stable=self._settings.read_committed)

    async def stable(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's offsets, once no transaction is about to commit others."""
        return await self.client.fetch(partitions, deadline, require_stable=True)
