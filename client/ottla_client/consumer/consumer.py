"""The consumer that applications use; what it does is in ``engine`` and what that puts together."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from ..cluster import Cluster
from ..deadline import Deadline
from ..errors import ClosedError, ConfigurationError
from ..group.assignors import assignors_named, common_protocol
from ..requests.list_offsets import find_offsets
from ..settings import DEFAULT_BOOTSTRAP, accepts
from ..types import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, OffsetSpec, TopicPartition
from .engine import Engine
from .listener import RebalanceListener
from .offset_commits import OffsetCommits
from .positions import PartitionState
from .rows import Rows, to_records
from .settings import ConsumerOptions, ConsumerSettings

if TYPE_CHECKING:
    import pyarrow

CLOSE_SECONDS = 30.0
"""How long ``close`` may take where nothing else is said."""
JUST_MADE = 1.0
"""Seconds for which a topic may exist that not all brokers know of yet."""


class Consumer:
    """Reads records. ::

        async with Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
            async for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    With a ``group_id`` and topics it is a member of a group, which divides the partitions among its members. Without
    one it reads all partitions of its topics. With ``assign`` it reads the partitions that it is told to.

    A consumer belongs to one event loop, and one task at a time may take records from it.
    """

    _closed_properly = True  # also where the constructor has not come far

    @accepts(ConsumerSettings)
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Options as Kafka's consumers name them; times in milliseconds, sizes in bytes.

        :param topics: to subscribe to; ``subscribe`` and ``assign`` can be called instead.
        :param bootstrap_servers: ``host:port`` of brokers to ask first, with commas between, or a list of them.
        :param group_id: None: no group, nothing is committed.
        :param group_instance_id: makes the member static: it keeps its partitions through a restart (KIP-345).
        :param auto_offset_reset: where to begin without a committed offset, or when the log doesn't have the
            position: "earliest", "latest", or "none" for OffsetOutOfRangeError.
        :param enable_auto_commit: commit what the application has done with every ``auto_commit_interval_ms``, before
            partitions are given up, and at ``close``. Records that were handed out last count as done with when
            more are asked for, or at ``close``; not when an exception leaves ``async with``.
        :param isolation_level: "read_committed" leaves out records of aborted and of open transactions.
        :param fetch_min_bytes: a broker answers when it has so much, or after ``fetch_max_wait_ms``.
        :param fetch_max_bytes: the most that a broker answers at once, more only for a single batch that is larger.
        :param max_partition_fetch_bytes: the same for a partition. Up to twice as much is buffered for each partition
            that is read.
        :param max_poll_records: the most that ``poll`` and ``getmany`` return at once.
        :param max_poll_interval_ms: an application that doesn't ask for records for so long is taken for dead:
            its partitions go to others, and its next call raises PollIntervalExceededError, once.
        :param session_timeout_ms: a member that the group hasn't heard of for so long is taken for dead. It is heard of
            every ``heartbeat_interval_ms``, from a task in the background: code that blocks the event loop stops it.
        :param partition_assignment_strategy: "range", "roundrobin", "sticky", "cooperative-sticky", or objects with
            the interface of ``group.assignors.Assignor``; the first that all members of the group have is used.
        :param key_deserializer: called with the bytes of each key that isn't null; ``value_deserializer`` likewise.
        :param check_crcs: have each batch's checksum verified.
        :param exclude_internal_topics: don't let a pattern match Kafka's own topics.
        :param allow_auto_create_topics: have the broker make subscribed topics that don't exist, if it is set to.
            Off, unlike with Java's consumer, as a mistyped name is seldom meant to become a topic.
        :param client_rack: where this consumer is, for reading from the closest replica (KIP-392).
        :param default_api_timeout_ms: for calls that have no timeout of their own.

        All clients have the options of `ConnectionSettings` as well. Raises ConfigurationError for an invalid option.
        """
        settings = ConsumerSettings.of(options, "Consumer")
        strategies = settings.partition_assignment_strategy
        common_protocol(assignors_named(strategies))
        cluster = Cluster(bootstrap_servers, settings)
        self._settings = settings
        self._engine = Engine(settings, cluster, strategies)
        self._iterator: Iterator[ConsumerRecord[Any, Any]] = iter(())
        self._manual = False
        self._loop: asyncio.AbstractEventLoop | None = None
        if topics:
            self.subscribe(topics)

    # ---- life

    async def start(self) -> None:
        """Connect to the cluster. Raises BootstrapError after ``default_api_timeout_ms`` if it can't be reached."""
        if self._engine.started or self._engine.closed:
            raise ClosedError("the consumer was started before; make a new one")
        self._closed_properly = False
        self._loop = asyncio.get_running_loop()
        try:
            await self._engine.start(self._deadline())
        except BaseException:
            self._closed_properly = True
            raise

    async def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Commit (if ``enable_auto_commit``), leave the group, disconnect; within ``timeout`` seconds.

        Everything that was handed out counts as done with. A second call does nothing.
        """
        await self._close(Deadline(timeout), processed=True)

    async def _close(self, deadline: Deadline, *, processed: bool) -> None:
        self._closed_properly = True
        await self._engine.close(deadline, processed=processed)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Records at which the application failed are not committed: they will be handed out again.
        await self._close(Deadline(CLOSE_SECONDS), processed=kind is None)

    def __del__(self) -> None:
        if self._closed_properly:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        loop, engine = self._loop, self._engine
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(lambda: loop.create_task(engine.close(Deadline(0.0), commit=False)))

    def __repr__(self) -> str:
        group = self._settings.group_id
        return f"<Consumer of {'no group' if group is None else f'group {group!r}'}>"

    def _deadline(self, timeout: float | None = None) -> Deadline:
        return Deadline(self._settings.default_api_timeout_ms / 1000 if timeout is None else timeout)

    # ---- what to read

    def subscribe(
        self,
        topics: Collection[str] | str | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose names match ``pattern`` from their start, instead of those until now.

        Topics that come to match are found within ``metadata_max_age_ms``. ``listener`` is told of partitions that
        come and go, in a group. Raises ConfigurationError after ``assign``: ``unsubscribe`` first.
        """
        if self._manual:
            raise ConfigurationError("partitions are assigned by hand; unsubscribe() before you subscribe")
        if (topics is None) == (pattern is None):
            raise ConfigurationError("subscribe to topics or to a pattern, one of the two")
        names = (topics,) if isinstance(topics, str) else tuple(topics or ())
        if topics is not None and (not names or not all(isinstance(name, str) and name for name in names)):
            raise ConfigurationError(f"topics are {topics!r}; names are needed, and unsubscribe() for none")
        if listener is not None:
            if self._engine.membership is None:
                raise ConfigurationError("a listener is told of a group's rebalances: set group_id")
            if not isinstance(listener, RebalanceListener):
                raise ConfigurationError("listener has to be a RebalanceListener")
        if self._engine.membership is not None:
            self._engine.membership.listener = listener
        self._engine.subscribe(names, re.compile(pattern) if pattern is not None else None)

    def unsubscribe(self) -> None:
        """Read nothing any more. A member leaves its group, in the background; ``listener`` is told."""
        self._manual = False
        self._engine.unsubscribe()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's say; those that stay keep their positions.

        With a ``group_id`` offsets are committed and begun from nevertheless. Raises ConfigurationError after
        ``subscribe``: ``unsubscribe`` first.
        """
        if self._engine.names or self._engine.pattern is not None:
            raise ConfigurationError("topics are subscribed; unsubscribe() before you assign partitions")
        self._manual = True
        self._engine.assign(_listed(partitions))

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._engine.positions.partitions

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed; those that match, for a pattern."""
        return self._engine.names

    # ---- records

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[Any, Any]]:
        return self._records()

    async def _records(self) -> AsyncIterator[ConsumerRecord[Any, Any]]:
        # The loop that hands out has nothing else in it: this is done for every record.
        engine = self._engine
        started = engine.started and not engine.closed
        while True:
            try:
                records = await self._iterate()
            except ClosedError:
                if engine.closed and started:
                    return
                raise
            for record in records:
                yield record

    async def _iterate(self) -> Iterator[ConsumerRecord[Any, Any]]:
        """An iterator over the next records, waited for; it ends early where partitions are paused or taken away."""
        records = await self._engine.poll(self._engine.buffer.iterate, Deadline(None))
        assert records is not None
        self._iterator = records
        return records

    async def getone(self) -> ConsumerRecord[Any, Any]:
        """The next record, waited for as long as it takes. Cancelling loses none.

        Raises DeserializationError, CorruptBatchError, OffsetOutOfRangeError, UnknownTopicError and others, each
        for a partition that stays where it is while others go on; GroupError; PollIntervalExceededError; ClosedError.
        """
        for record in self._iterator:
            return record
        return next(await self._iterate())

    async def poll(
        self, timeout_ms: int | None = 1_000, max_records: int | None = None
    ) -> list[ConsumerRecord[Any, Any]]:
        """Records, as soon as there are some, up to ``max_records``; none when ``timeout_ms`` have passed.

        ``timeout_ms`` None waits for ever; ``max_records`` None means ``max_poll_records``. Each partition's records
        are in order. Raises as ``getone``; what is behind records that can be handed out is raised by the next call.
        """
        return to_records(await self._take(timeout_ms, max_records, None))

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int | None = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """As ``poll``, by partition, and of these partitions only if some are named. ``timeout_ms`` 0 doesn't wait."""
        only = frozenset(self._state(partition).partition for partition in partitions) or None
        by_partition: dict[TopicPartition, list[Rows]] = {}
        for rows in await self._take(timeout_ms, max_records, only):
            by_partition.setdefault(TopicPartition(rows.topic, rows.partition), []).append(rows)
        return {partition: to_records(runs) for partition, runs in by_partition.items()}

    async def poll_arrow(
        self, timeout_ms: int | None = 1_000, max_records: int = 100_000, *, headers: bool = False
    ) -> pyarrow.Table:
        """Records as an Arrow table, as soon as there are some; an empty one when ``timeout_ms`` have passed.

        The columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType,
        and headers if asked for (``ottla_client.arrow`` has their types). Keys and values are bytes: deserializers
        are not used. Rows of a partition are in order. Positions and commits go as with ``poll``. Raises as
        ``getone``, and ConfigurationError where pyarrow and numpy (the extra ``arrow``) are not installed.
        """
        from ..arrow import to_arrow

        if max_records < 1:
            raise ConfigurationError(f"max_records is {max_records}; at least 1 is needed")
        buffer = self._engine.buffer
        deadline = Deadline(None if timeout_ms is None else timeout_ms / 1000)
        parts = await self._engine.poll(lambda: buffer.take_parts(max_records) or None, deadline)
        return to_arrow(parts or (), headers=headers)

    async def _take(
        self, timeout_ms: int | None, max_records: int | None, only: frozenset[TopicPartition] | None
    ) -> list[Rows]:
        count = self._settings.max_poll_records if max_records is None else max_records
        if count < 1:
            raise ConfigurationError(f"max_records is {max_records}; at least 1 is needed")
        buffer = self._engine.buffer
        deadline = Deadline(None if timeout_ms is None else timeout_ms / 1000)
        return await self._engine.poll(lambda: buffer.take(count, only) or None, deadline) or []

    # ---- positions

    def _state(self, partition: TopicPartition) -> PartitionState:
        return self._engine.state(partition)

    def _states(self, partitions: Collection[TopicPartition]) -> list[PartitionState]:
        return [self._state(partition) for partition in partitions or self.assignment()]

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out; waits until it is known.

        Raises ConfigurationError for a partition that isn't assigned, RequestTimeoutError, the partition's error.
        """
        return await self._engine.resolve_position(self._state(partition), self._deadline())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``, whatever is buffered. Also the way past a record that can't be read.

        Whether the log has the offset shows at the next fetch: ``auto_offset_reset`` says what then.
        """
        if offset < 0:
            raise ConfigurationError(
                f"there is no offset {offset}; seek_to_beginning() and seek_to_end() find the ends"
            )
        self._engine.seek(self._state(partition), offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record that there is; of all assigned partitions, if none are named."""
        await self._seek_to(partitions, OffsetSpec.EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record that there is, which for read_committed is the last that is decided."""
        await self._seek_to(partitions, OffsetSpec.LATEST)

    async def _seek_to(self, partitions: Collection[TopicPartition], end: int) -> None:
        states = self._states(partitions)
        self._engine.check()
        deadline = self._deadline()
        self._engine.reset(states, end)
        for state in states:
            await self._engine.resolve_position(state, deadline)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until ``resume``; what is buffered of them is kept.

        Raises ConfigurationError for a partition that isn't assigned. A rebalance that takes one away ends its pause.
        """
        for state in [self._state(partition) for partition in partitions]:
            self._engine.buffer.halt(state)
            state.paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions."""
        for state in [self._state(partition) for partition in partitions]:
            state.paused = False
        self._engine.wake()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(state.partition for state in self._engine.positions if state.paused)

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end, as the last fetch told; None before there was one.

        For read_committed the end is behind the last record that is decided. Asks nobody.
        """
        state = self._state(partition)
        self._engine.buffer.sync()
        end = state.last_stable_offset if self._settings.read_committed else state.high_watermark
        return None if end is None or state.position is None else max(0, end - state.position)

    # ---- the group's offsets

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit offsets, which are those of the next records to read; None: of all that was handed out.

        Raises ConfigurationError without a group_id; CommitFailedError where the group has given the partitions to
        others; GroupError, which may be retriable; RequestTimeoutError.
        """
        commits = self._commits()
        if offsets is None:
            exact = commits.handed_out()
        else:
            exact = {
                TopicPartition(*partition): OffsetAndMetadata(each) if isinstance(each, int) else each
                for partition, each in offsets.items()
            }
        await commits.commit(exact, self._deadline())

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None where nothing; for all assigned partitions, if none are named.

        Raises ConfigurationError without a group_id, GroupError, RequestTimeoutError.
        """
        commits = self._commits()
        wanted = [TopicPartition(*partition) for partition in partitions or self.assignment()]
        found = await commits.committed(wanted, self._deadline())
        return {partition: found.get(partition) for partition in wanted}

    def _commits(self) -> OffsetCommits:
        self._engine.check()
        if self._engine.commits is None:
            raise ConfigurationError("offsets are committed for a group: set group_id")
        return self._engine.commits

    # ---- what the brokers know

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset whose timestamp is at or after a time in milliseconds; None where there is none yet.

        Of any partitions, assigned or not. Raises UnknownTopicError, BrokerError, RequestTimeoutError.
        """
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise ConfigurationError(
                    f"{timestamp} is no time, for {partition}; milliseconds since 1970 are needed"
                )
        return await self._find(timestamps)

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition's log. Errors as of ``offsets_for_times``."""
        return self._ends(await self._find(dict.fromkeys(_listed(partitions), OffsetSpec.EARLIEST)))

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record; for read_committed, behind the last that is decided.

        Errors as of ``offsets_for_times``.
        """
        return self._ends(await self._find(dict.fromkeys(_listed(partitions), OffsetSpec.LATEST)))

    async def _find(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        self._engine.check()
        exact = {TopicPartition(*partition): time for partition, time in wanted.items()}
        return await find_offsets(self._engine.cluster, exact, self._settings.isolation, self._deadline())

    @staticmethod
    def _ends(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> dict[TopicPartition, int]:
        return {partition: 0 if each is None else each.offset for partition, each in found.items()}

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions. Raises UnknownTopicError, which names topics that may be meant.

        A topic that was made a moment ago may not be known to all brokers yet: for that second it is waited for.
        """
        self._engine.check()
        known = await self._engine.cluster.wait_for_topic(topic, self._deadline(), grace=JUST_MADE)
        return sorted(known.partitions)

    partitions_for_topic = partitions_for

    async def topics(self) -> list[str]:
        """The names of all topics that this user may see, Kafka's own included. Raises RequestTimeoutError."""
        self._engine.check()
        return sorted(await self._engine.cluster.fetch_topics(None, self._deadline()))


def _listed(partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Raises ConfigurationError for a single partition, which is a collection too, but of a name and a number."""
    if isinstance(partitions, TopicPartition):
        raise ConfigurationError(f"a list is needed, also for a single partition: [{partitions!r}]")
    return [TopicPartition(*partition) for partition in partitions]


async def poll_rows(consumer: Consumer, *, timeout_ms: int, max_records: int) -> list[Rows]:
    """As ``Consumer.poll``, without making an object of each record: for the commands."""
    return await consumer._take(timeout_ms, max_records, None)
