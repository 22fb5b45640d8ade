"""The consumer's parts put together, and the task that checks them several times a second.

The public class holds the engine. The engine doesn't hold the public class, so that a consumer that is never closed is
noticed. Belongs to the thread of its event loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import TypeVar

from ..cluster import Cluster
from ..cluster.tasks import background
from ..deadline import Deadline, wait_at_most
from ..errors import (
    ClientError,
    ClosedError,
    ConfigurationError,
    RequestTimeoutError,
)
from ..group.assignors import Assignor
from ..group.offsets import OffsetsClient
from ..types import TopicMetadata, TopicPartition
from .buffer import Buffer
from .fetcher import Fetcher
from .membership import Membership
from .metadata_monitor import MetadataMonitor
from .new_partitions import NewPartitions
from .offset_commits import OffsetCommits
from .poll_gate import PollGate
from .positions import PartitionState, Positions, Stage
from .records import RecordReader
from .resolver import Resolver
from .settings import ConsumerSettings

T = TypeVar("T")

_log = logging.getLogger("ottla_client")

TICK = 0.1
"""Seconds between two checks of what is due: retries, commits, deleted topics."""
YIELD_AFTER = 0.002
"""Seconds of handing out records after which the event loop gets a turn."""


class Engine:
    """A consumer's parts and its lifecycle."""

    def __init__(
        self, settings: ConsumerSettings, cluster: Cluster, strategies: Sequence[str | Assignor]
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.positions = Positions()
        self.buffer = Buffer(RecordReader(settings), settings.max_partition_fetch_bytes, self._on_room)
        self.gate = PollGate(self.buffer)
        self.commits: OffsetCommits | None = None
        self.membership: Membership | None = None
        if settings.group_id is not None:
            offsets = OffsetsClient(cluster, settings.group_id)
            self.commits = OffsetCommits(offsets, settings, self.positions, self.buffer)
            self.membership = Membership(
                cluster,
                settings.group_id,
                settings,
                strategies,
                self.positions,
                self.buffer,
                self.gate,
                self.commits,
                assigned=self._add,
                removed=self._remove,
                ready=self.wake,
            )
        self.new_partitions = NewPartitions(cluster)
        self.resolver = Resolver(
            cluster,
            settings,
            self.positions,
            self.new_partitions,
            None if self.commits is None else self.commits.committed,
            changed=self._resolved,
            fail=self._fail,
        )
        self.fetcher = Fetcher(
            *(cluster, settings, self.positions, self.buffer),
            arrived=self.gate.signal,
            out_of_range=self._out_of_range,
            fail=self._fail,
            report=self.report,
        )
        self._monitor = MetadataMonitor(
            *(cluster, settings, self.positions, self.buffer),
            fail=self._fail,
            report=self.report,
            wake=self.wake,
        )
        self.names: frozenset[str] = frozenset()
        """Topics subscribed by name, or that match the pattern."""
        self.pattern: re.Pattern[str] | None = None
        self._matched = False
        """Whether the pattern has been matched with the cluster's topics."""
        self.managed = False
        """Whether the owner of the engine assigns partitions as they come, so that having none is no mistake."""
        self.started = False
        self.closed = False
        """Whether a close has begun; ``_ended`` when it is over."""
        self._ended = False
        self._problems: deque[ClientError] = deque()
        self._alarm = False
        """Whether a partition may have an error that was not raised yet."""
        self._yield_at = 0.0
        self._interest: frozenset[str] = frozenset()
        self._unlisten: Callable[[], None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._topics_wanted = asyncio.Event()
        self._news: asyncio.Future[None] | None = None
        """Done when a position may have been found, for ``resolve_position``."""

    async def start(self, deadline: Deadline) -> None:
        """Connect and start reading. Raises BootstrapError."""
        await self.cluster.start(deadline)
        self.started = True
        self._unlisten = self.cluster.on_change(self._metadata_changed)
        self._tasks = [
            background(self._tick(), "the consumer's timer"),
            background(self._keep_topics(), "the consumer's look-up of topics"),
        ]
        self._subscribed()
        self.wake()

    async def close(self, deadline: Deadline, *, commit: bool = True, processed: bool = True) -> None:
        """Stop reading, commit, leave the group, disconnect. A second call does nothing.

        With ``processed``, all records that were handed out count as processed.
        Without ``commit``, no commit starts.
        """
        if self.closed:
            return
        self.closed = True
        self.buffer.halt()
        # Before the gate opens: a rebalance that waits there commits what is processed.
        if not commit:
            self._abandon_commits()
        elif processed:
            self.buffer.mark_processed()
        self.gate.close()
        if not self.started:
            return
        try:
            await self._close(deadline)
        finally:
            # The close may have been cancelled, or have failed: stop everything.
            self.fetcher.stop()
            self.resolver.stop()
            self._abandon_commits()
            if self.membership is not None:
                await self.membership.close(Deadline(0.0))
            self._ended = True
            await self.cluster.close()

    async def _close(self, deadline: Deadline) -> None:
        if self._unlisten is not None:
            self._unlisten()
        self.fetcher.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.fetcher.wait_stopped()
        if self.membership is not None:
            await self.membership.close(deadline)
        self.resolver.stop()
        await self.resolver.wait_stopped()

    def _abandon_commits(self) -> None:
        if self.commits is not None:
            self.commits.abandon()

    @property
    def usable(self) -> bool:
        """Whether the consumer is open, or is being closed and its rebalance listener runs, which may use it."""
        calling = self.membership is not None and self.membership.calling
        return not self.closed or (calling and not self._ended)

    def api_deadline(self) -> Deadline:
        """The deadline of a call without a timeout of its own."""
        return Deadline(self.settings.default_api_timeout_ms / 1000)

    def check(self) -> None:
        """Raise ClosedError unless the consumer is started and usable."""
        if not self.usable:
            raise ClosedError("the consumer is closed")
        if not self.started:
            raise ClosedError("the consumer is not started: await start(), or use `async with`")

    def subscribe(self, names: Collection[str], pattern: re.Pattern[str] | None) -> None:
        """Read topics by name, or all topics that match a pattern."""
        self.pattern = pattern
        self.names = frozenset(names)
        self._matched = False
        if self.started:
            self._subscribed()

    def unsubscribe(self) -> None:
        """Stop reading and leave the group."""
        self.names = frozenset()
        self.pattern = None
        if self.membership is not None:
            self.membership.leave()
        self._remove(self.positions.partitions)

    def assign(
        self, partitions: Collection[TopicPartition], offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Read exactly these partitions; ``offsets`` says where to start with some of them."""
        wanted = frozenset(partitions)
        self._remove(self.positions.partitions - wanted)
        self._add(wanted)
        for partition, offset in (offsets or {}).items():
            self.state(partition).seek(offset)
        self.wake()

    def _subscribed(self) -> None:
        self._update_interest()
        self._look_for_new()
        if self.pattern is not None or self.settings.allow_auto_create_topics:
            self._topics_wanted.set()
        if self.membership is None:
            self._take_all()
        elif self.names:
            self.membership.subscribe(self.names)

    def _take_all(self) -> None:
        """Without a group, assign all partitions of the subscribed topics."""
        if self.membership is not None or not (self.names or self.pattern):
            return
        wanted = set()
        for name in self.names:
            topic = self.cluster.topic(name)
            if topic is not None:
                wanted |= {TopicPartition(name, number) for number in topic.partitions}
        self._remove([tp for tp in self.positions.partitions if tp.topic not in self.names])
        self._add(wanted)
        self.wake()

    async def _keep_topics(self) -> None:
        """Keep looking up the topics that a pattern matches; create subscribed topics if that is allowed."""
        age = self.settings.metadata_max_age_ms / 1000
        while True:
            # A pattern may match new topics, so they are looked up from time to time.
            await wait_at_most(self._topics_wanted, age if self.pattern is not None else None)
            self._topics_wanted.clear()
            deadline = Deadline(self.settings.request_timeout_ms / 1000)
            try:
                if self.pattern is not None:
                    self._match(await self.cluster.fetch_topics(None, deadline))
                elif self.names and self.settings.allow_auto_create_topics:
                    await self.cluster.fetch_topics(self.names, deadline, allow_auto_create=True)
            except ClientError as error:
                _log.warning("looking up topics failed: %s", error)
                await asyncio.sleep(self.cluster.backoff.maximum)
                self._topics_wanted.set()

    def _match(self, topics: dict[str, TopicMetadata]) -> None:
        pattern = self.pattern
        if pattern is None:
            return
        names = frozenset(
            name
            for name, topic in topics.items()
            if not topic.error
            and not (topic.is_internal and self.settings.exclude_internal_topics)
            and pattern.match(name)
        )
        if names != self.names or not self._matched:
            if self._matched:
                self.new_partitions.appeared(names - self.names)
            self._matched = True
            self.names = names
            self._update_interest()
            self._look_for_new()
            if self.membership is not None:
                self.membership.subscribe(names)
            self._take_all()

    def _update_interest(self) -> None:
        if not self.started:
            return
        wanted = self.names | {tp.topic for tp in self.positions.partitions}
        self.cluster.interest(wanted - self._interest)
        self.cluster.disinterest(self._interest - wanted)
        self._interest = wanted

    def _add(self, partitions: Collection[TopicPartition]) -> None:
        for state in self.positions.add(partitions):
            self._monitor.check_partition(state, monotonic())
        self._update_interest()

    def _remove(self, partitions: Collection[TopicPartition]) -> None:
        states = [state for tp in partitions if (state := self.positions.get(tp)) is not None]
        if states:
            self.buffer.remove(states)
            self.positions.remove([state.partition for state in states])
            self._update_interest()
            self._spread_news()

    async def poll(self, take: Callable[[], T | None], deadline: Deadline) -> T | None:
        """Return what ``take`` gives, as soon as that isn't None; None at the deadline.

        No await follows ``take``, so a cancelled call loses nothing. Raises errors of the group, of partitions and
        of records; and ClientError while another task polls.
        """
        self.check()
        self.gate.enter()
        try:
            if monotonic() >= self._yield_at:
                await asyncio.sleep(0)
                self._yield_at = monotonic() + YIELD_AFTER
            while True:
                self._raise_problems()
                if self.gate.open:
                    taken = take()
                    if taken is not None:
                        return taken
                self._check_not_stuck()
                if deadline.passed():
                    return None
                await self.gate.changed(deadline)
                self._yield_at = monotonic() + YIELD_AFTER
        finally:
            self.gate.leave()

    def _raise_problems(self) -> None:
        if self.closed:
            raise ClosedError("the consumer is closed")
        if self.membership is not None:
            self.membership.polled()
        if self._problems:
            raise self._problems.popleft()
        if self._alarm:
            for state in self.positions:
                if state.error is not None and not state.reported:
                    state.reported = True
                    raise state.error
            self._alarm = False

    def _check_not_stuck(self) -> None:
        """Raise instead of waiting for records that can't come."""
        if not len(self.positions):
            if not self.names and self.pattern is None and self.membership is None and not self.managed:
                raise ConfigurationError(
                    "there is nothing to read: subscribe to topics or assign partitions first"
                )
            return
        first: ClientError | None = None
        for state in self.positions:
            if state.error is None:
                return
            first = first or state.error
        if first is not None:
            raise first

    def report(self, error: ClientError) -> None:
        """Raise an error in the next poll."""
        if not self._problems or str(self._problems[-1]) != str(error):
            self._problems.append(error)
        self.gate.signal()

    def _fail(self, state: PartitionState, error: ClientError) -> None:
        self.buffer.halt(state)
        state.fail(error)
        self._alarm = True
        self.gate.signal()
        self._spread_news()

    def state(self, partition: TopicPartition) -> PartitionState:
        """The state of a partition. Raises ConfigurationError if it isn't assigned."""
        state = self.positions.get(TopicPartition(*partition))
        if state is None:
            raise ConfigurationError(f"{TopicPartition(*partition)} is not assigned to this consumer")
        return state

    def seek(self, state: PartitionState, offset: int) -> None:
        """Continue at ``offset``."""
        if not self.buffer.skip_to(state, offset):
            self.buffer.drop(state)
            state.seek(offset)
        self.wake()

    def reset(self, states: Collection[PartitionState], to: int) -> None:
        """Continue at a timestamp, or at an end of the log."""
        for state in states:
            self.buffer.drop(state)
            state.reset(to)
        self.wake()

    def reset_by_policy(self, state: PartitionState) -> None:
        """Continue where auto_offset_reset says: the group has no offset."""
        self.buffer.drop(state)
        self.resolver.reset_by_policy(state, "the group has committed no offset")
        self.wake()

    async def resolve_position(self, state: PartitionState, deadline: Deadline) -> int:
        """Wait for the partition's position. Raises the partition's error, RequestTimeoutError."""
        while True:
            self.check()
            if self.positions.get(state.partition) is not state:
                raise ConfigurationError(f"{state.partition} is no longer assigned to this consumer")
            if state.error is not None:
                state.reported = True
                raise state.error
            if state.position is not None and state.stage in (Stage.FETCHING, Stage.NEEDS_VALIDATION):
                self.buffer.sync()
                return state.position
            if state.busy and self.membership is not None and not self.resolver.busy:
                # The rebalance listener asks: look the position up now.
                state.busy = False
            self.resolver.wake()
            if self._news is None or self._news.done():
                self._news = asyncio.get_running_loop().create_future()
            try:
                async with deadline.timeout():
                    await asyncio.shield(self._news)
            except TimeoutError:
                raise RequestTimeoutError(
                    f"the position of {state.partition} was not found in time"
                ) from None

    def _out_of_range(self, state: PartitionState) -> None:
        offset = state.fetch_offset
        _log.info("%s has no offset %d; applying auto_offset_reset", state.partition, offset)
        self.buffer.drop(state)
        self.resolver.reset_by_policy(state, "the log doesn't have it", read_before=True)
        state.set_back(self.cluster.backoff.after)
        self.wake()

    def _on_room(self, state: PartitionState) -> None:
        self.fetcher.wake_for(state)

    def _resolved(self) -> None:
        self.wake()
        self._spread_news()

    def _spread_news(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def wake(self) -> None:
        """Something changed: start what is possible now."""
        if self.started and not self.closed:
            self.resolver.wake()
            # Wait for positions that are being looked up, so that their partitions share the fetch.
            if not self.resolver.busy:
                self.fetcher.wake()
            self.gate.signal()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._monitor.check(self.names if self.pattern is None else ())
            try:
                if self.membership is not None:
                    self.membership.tick()
                if self.commits is not None:
                    self.commits.commit_if_due()
            except ClientError as error:
                self.report(error)
            self.resolver.wake()
            self.fetcher.wake()

    def _look_for_new(self) -> None:
        if not self.managed:
            self.new_partitions.look(self.names)

    def _metadata_changed(self) -> None:
        self._look_for_new()
        self._take_all()
        self._monitor.check(self.names if self.pattern is None else ())
        self.wake()
