"""Looks positions up: committed offsets, the ends of logs, and whether a new leader confirms a position.

Each request is a task of its own, so that a broker that doesn't answer delays only its own partitions. A partition is
``busy`` during a request; a response for an old version of it is dropped. Source: Java's
``ConsumerCoordinator.initWithCommittedOffsetsIfNeeded``, ``OffsetFetcher``, ``OffsetFetcherUtils``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine
from time import monotonic
from typing import Any

from ottla_protocol.errors import RETRIABLE, ErrorCode

from ..cluster import Cluster
from ..deadline import Deadline
from ..errors import BrokerError, ClientError, LogTruncatedError, OffsetOutOfRangeError, is_retriable
from ..requests.leader_epochs import EpochEnd, ask_epochs
from ..requests.list_offsets import OffsetQuery, ask_offsets
from ..types import ListedOffset, OffsetAndMetadata, OffsetSpec, TopicPartition
from .new_partitions import NewPartitions
from .positions import PartitionState, Positions, Stage
from .settings import ConsumerSettings

_log = logging.getLogger("ottla_client")

Committed = Callable[
    [Collection[TopicPartition], Deadline], Awaitable[dict[TopicPartition, OffsetAndMetadata]]
]

_POLICIES = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST, "none": None}


class Resolver:
    """Brings partitions to the stage FETCHING."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        positions: Positions,
        new_partitions: NewPartitions,
        committed: Committed | None,
        *,
        changed: Callable[[], None],
        fail: Callable[[PartitionState, ClientError], None],
    ) -> None:
        """``committed`` asks the group; None without one. ``changed`` is called after each response."""
        self._cluster = cluster
        self._settings = settings
        self._positions = positions
        self._committed = committed
        self._changed = changed
        self._fail = fail
        self._policy = _POLICIES[settings.auto_offset_reset]
        self._new_partitions = new_partitions
        self._policy_of_new = _POLICIES[settings.reset_of_new_partitions]
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Send the requests that partitions need."""
        now = monotonic()
        offsets: list[PartitionState] = []
        by_leader: dict[tuple[Stage, int], list[PartitionState]] = defaultdict(list)
        for state in self._positions:
            if (
                state.stage is Stage.FETCHING
                or state.stage is Stage.FAILED
                or state.busy
                or state.retry_at > now
            ):
                continue
            if state.stage is Stage.NEEDS_OFFSET:
                if self._committed is not None:
                    offsets.append(state)
                    continue
                self.reset_by_policy(state, "there is no group")
                if state.error is not None:
                    continue
            leader = self._cluster.leader(*state.partition)
            if leader is None:
                self._cluster.stale(state.partition.topic)
            else:
                by_leader[state.stage, leader].append(state)
        if offsets:
            self._start(self._find_committed(offsets), offsets)
        for (stage, leader), states in by_leader.items():
            if stage is Stage.NEEDS_RESET:
                self._start(self._find_offsets(leader, states), states)
            else:
                self._start(self._validate(leader, states), states)

    @property
    def busy(self) -> bool:
        """Whether requests are in flight."""
        return bool(self._tasks)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def wait_stopped(self) -> None:
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def reset_by_policy(self, state: PartitionState, why: str, *, read_before: bool = False) -> None:
        """Apply auto_offset_reset, or for a new partition that wasn't read yet, auto_offset_reset_new_partitions."""
        new = not read_before and state.partition in self._new_partitions
        policy = self._policy_of_new if new else self._policy
        if policy is not None:
            state.reset(policy)
            return
        at = "no position" if state.position is None else f"the position {state.position}"
        self._fail(
            state,
            OffsetOutOfRangeError(
                f'{state.partition} has {at} ({why}), and auto_offset_reset is "none"; seek to an offset, or set it '
                "to earliest or latest",
                {} if state.position is None else {state.partition: state.position},
            ),
        )

    def _start(self, coroutine: Coroutine[Any, Any, None], states: list[PartitionState]) -> None:
        for state in states:
            state.busy = True
        task = asyncio.get_running_loop().create_task(self._guard(coroutine, states))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()
            self._changed()

    async def _guard(self, coroutine: Coroutine[Any, Any, None], states: list[PartitionState]) -> None:
        """Run a request, and handle an error of the whole request."""
        versions = [state.version for state in states]
        try:
            await coroutine
        except ClientError as error:
            if is_retriable(error):
                _log.info("looking up positions failed: %s", error)
                self._cluster.stale()
            for state, version in zip(states, versions, strict=True):
                if state.version == version:
                    self._trouble(state, error)
        finally:
            for state in states:
                state.busy = False

    def _trouble(self, state: PartitionState, error: ClientError) -> None:
        if is_retriable(error):
            state.back_off(self._cluster.backoff.after(state.attempts + 1))
        else:
            self._fail(state, error)

    def _deadline(self) -> Deadline:
        return Deadline(self._settings.request_timeout_ms / 1000)

    async def _find_committed(self, states: list[PartitionState]) -> None:
        assert self._committed is not None
        versions = {state.partition: state.version for state in states}
        offsets = await self._committed(list(versions), self._deadline())
        for state in states:
            if state.version != versions[state.partition] or state.stage is not Stage.NEEDS_OFFSET:
                continue
            committed = offsets.get(state.partition)
            if committed is None:
                self.reset_by_policy(state, "the group has committed no offset")
            else:
                state.found(committed.offset, committed.leader_epoch)
                state.committed = committed.offset
                state.validate()

    async def _find_offsets(self, leader: int, states: list[PartitionState]) -> None:
        versions = {state.partition: state.version for state in states}
        wanted = {state.partition: OffsetQuery(state.reset_to, state.leader_epoch) for state in states}
        answers = await ask_offsets(self._cluster, leader, wanted, self._settings.isolation, self._deadline())
        for state in states:
            if state.version != versions[state.partition] or state.stage is not Stage.NEEDS_RESET:
                continue
            answer = answers.get(state.partition)
            if not isinstance(answer, ListedOffset):
                code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else answer.code
                self._refused(state, code, "its offsets can't be looked up")
            elif answer.offset < 0:
                # No record is as late as the timestamp, so the next one written is the first.
                state.reset(OffsetSpec.LATEST)
            else:
                # The epoch in the response is the leader's, not that of the record before the offset.
                state.found(answer.offset, None)

    async def _validate(self, leader: int, states: list[PartitionState]) -> None:
        versions = {state.partition: state.version for state in states}
        wanted = {
            state.partition: (state.epoch, state.leader_epoch)
            for state in states
            if state.epoch is not None and state.leader_epoch is not None
        }
        answers = await ask_epochs(self._cluster, leader, wanted, self._deadline()) if wanted else None
        for state in states:
            if state.version != versions[state.partition] or state.stage is not Stage.NEEDS_VALIDATION:
                continue
            if answers is None or state.partition not in wanted:
                state.validated()
                continue
            answer = answers.get(state.partition, EpochEnd(ErrorCode.UNKNOWN_SERVER_ERROR))
            if answer.code:
                self._refused(state, answer.code, "its position can't be validated")
            else:
                self._check(state, answer)

    def _check(self, state: PartitionState, end: EpochEnd) -> None:
        """Compare a position with the end of its epoch; the log may have lost records that were read."""
        position = state.position
        assert position is not None
        known = end.end_offset >= 0 and end.epoch >= 0
        if known and end.end_offset >= position:
            state.validated()
            return
        what = (
            f"{state.partition}: the log was truncated below the position {position}; the records that were read "
            f"and lost begin at {end.end_offset if known else 'an unknown offset'}"
        )
        if self._policy is None:
            self._fail(
                state,
                LogTruncatedError(f"{what}; seek to an offset to continue", {state.partition: position}),
            )
            return
        _log.warning("%s; continuing %s", what, "there" if known else "by auto_offset_reset")
        if known:
            state.seek(end.end_offset, end.epoch)
        else:
            state.reset(self._policy)

    def _refused(self, state: PartitionState, code: ErrorCode, what: str) -> None:
        if code in RETRIABLE:
            self._cluster.stale(state.partition.topic)
        self._trouble(state, BrokerError(code, f"{state.partition}: {what}: {code.name}"))
