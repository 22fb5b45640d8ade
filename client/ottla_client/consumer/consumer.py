"""The public consumer; ``engine`` does the work."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from ..cluster import Cluster
from ..cluster.topic_names import topic_names
from ..deadline import NEVER, Deadline
from ..errors import ClientError, ConfigurationError
from ..group.assignors import assignors_named, common_protocol
from ..meters import Metrics
from ..requests.list_offsets import find_offsets
from ..requests.log_walk import LogWalk, walks
from ..settings import DEFAULT_BOOTSTRAP, accepts
from ..types import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetSpec,
    TopicPartition,
)
from .engine import Engine
from .lifecycle import IteratedConsumer
from .listener import RebalanceListener
from .offset_commits import OffsetCommits
from .positions import PartitionState
from .rows import Rows, to_records
from .settings import ConsumerOptions, ConsumerSettings

if TYPE_CHECKING:
    import pyarrow

    from ..arrow import Part

CLOSE_SECONDS = 30.0
"""The default timeout of ``close``."""
JUST_MADE = 1.0
"""Seconds for which some brokers may not know a new topic yet."""


class Consumer(IteratedConsumer):
    """Reads records::

        async with Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
            async for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    With a ``group_id`` and topics it is a member of a group, which divides the partitions among its members. Without
    a ``group_id`` it reads all partitions of its topics. With ``assign`` it reads the partitions that you name.

    A consumer belongs to one event loop. One task at a time may take records from it.
    """

    _engine: Engine

    @accepts(ConsumerSettings)
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Options as Kafka's consumers name them; times in milliseconds, sizes in bytes.

        :param topics: topics to subscribe to. You can call ``subscribe`` or ``assign`` instead.
        :param bootstrap_servers: brokers to contact first: ``host:port``, separated by commas or as a list.
        :param group_id: the consumer group. None reads without a group and commits nothing.
        :param group_instance_id: makes the member static: it keeps its partitions across a restart (KIP-345).
        :param group_protocol: "classic", or "consumer" to have the broker assign the partitions (KIP-848): a rebalance
            then stops no member, and the broker decides about sessions, heartbeats and assignors.
        :param group_remote_assignor: with "consumer", one of the broker's assignors: "uniform" or "range".
        :param auto_offset_reset: where to start when there is no committed offset, or the log no longer has the
            position: "earliest", "latest", or "none" to raise OffsetOutOfRangeError.
        :param auto_offset_reset_new_partitions: where to start in partitions and topics that appear after the
            subscription, without a committed offset (KIP-1327). None means "earliest" if ``auto_offset_reset`` is
            "latest", because that would skip what comes before the consumer sees them, and otherwise the same.
        :param enable_auto_commit: commit processed records every ``auto_commit_interval_ms``, before partitions are
            given up, and in ``close``. Records count as processed when you ask for more, or call ``close``; not when
            an exception leaves ``async with``.
        :param isolation_level: "read_committed" skips records of aborted and open transactions.
        :param fetch_min_bytes: a broker answers when it has this many bytes, or after ``fetch_max_wait_ms``.
        :param fetch_max_bytes: the largest response, exceeded only by a single larger batch.
        :param max_partition_fetch_bytes: the same for each partition. The consumer buffers up to twice as much.
        :param max_poll_records: the most records that ``poll`` and ``getmany`` return.
        :param max_poll_interval_ms: the longest time between two requests for records. After it the member leaves
            the group, and the next call raises PollIntervalExceededError, once.
        :param session_timeout_ms: how long the group waits for a heartbeat before it removes the member. A background
            task sends one every ``heartbeat_interval_ms``; code that blocks the event loop stops it.
        :param partition_assignment_strategy: "range", "roundrobin", "sticky", "cooperative-sticky", or objects with
            the interface of ``group.assignors.Assignor``. The group uses the first that all its members have.
        :param key_deserializer: called with the bytes of each key that isn't null; ``value_deserializer`` likewise.
        :param check_crcs: verify the checksum of each batch.
        :param exclude_internal_topics: keep patterns from matching Kafka's internal topics.
        :param allow_auto_create_topics: let the broker create subscribed topics that don't exist, if its own settings
            allow it. Off, unlike in Java's consumer: a missing topic is usually a typo.
        :param client_rack: this consumer's rack, for reading from the closest replica (KIP-392).
        :param default_api_timeout_ms: the timeout of calls without one of their own.

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
        if topics:
            self.subscribe(topics)

    async def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Commit (if ``enable_auto_commit``), leave the group and disconnect, within ``timeout`` seconds.

        All records that were handed out count as processed. A second call does nothing.
        """
        await self._close(Deadline(timeout), processed=True)

    async def _close(self, deadline: Deadline, *, processed: bool) -> None:
        self._closed_properly = True
        await self._engine.close(deadline, processed=processed)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The records that the application failed on are not committed, so that they are delivered again.
        await self._close(Deadline(CLOSE_SECONDS), processed=kind is None)

    def _disconnect(self) -> Callable[[], Coroutine[Any, Any, None]]:
        return partial(self._engine.close, Deadline(0.0), commit=False)

    def __repr__(self) -> str:
        group = self._settings.group_id
        return f"<Consumer of {'no group' if group is None else f'group {group!r}'}>"

    def _deadline(self) -> Deadline:
        return self._engine.api_deadline()

    def subscribe(
        self,
        topics: Collection[str] | str | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all topics whose names match ``pattern`` from the start. Replaces the subscription.

        New topics that match are found within ``metadata_max_age_ms``. ``listener`` is called in rebalances of the
        group. Raises ConfigurationError after ``assign``: call ``unsubscribe`` first.
        """
        if self._manual:
            raise ConfigurationError(
                "partitions were assigned with assign(); call unsubscribe() before subscribe()"
            )
        if (topics is None) == (pattern is None):
            raise ConfigurationError("subscribe to topics or to a pattern, not both or neither")
        names = () if topics is None else topic_names(topics)
        if listener is not None:
            if self._engine.membership is None:
                raise ConfigurationError("a listener needs a group_id: only groups rebalance")
            if not isinstance(listener, RebalanceListener):
                raise ConfigurationError("listener must be a RebalanceListener")
        if self._engine.membership is not None:
            self._engine.membership.listener = listener
        self._engine.subscribe(names, re.compile(pattern) if pattern is not None else None)

    def unsubscribe(self) -> None:
        """Stop reading. A member leaves its group in the background; ``listener`` is called."""
        self._manual = False
        self._engine.unsubscribe()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, without rebalances. Partitions that were assigned keep their positions.

        With a ``group_id`` the consumer starts from the group's offsets and commits. Raises ConfigurationError after
        ``subscribe``: call ``unsubscribe`` first.
        """
        if self._engine.names or self._engine.pattern is not None:
            raise ConfigurationError("topics are subscribed; call unsubscribe() before assign()")
        self._manual = True
        self._engine.assign(_listed(partitions))

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer reads now."""
        return self._engine.positions.partitions

    def subscription(self) -> frozenset[str]:
        """The subscribed topics, or the topics that match the pattern."""
        return self._engine.names

    async def _iterate(self) -> Iterator[ConsumerRecord[Any, Any]]:
        """Wait for records; the iterator ends early when one of their partitions is paused or revoked."""
        records = await self._engine.poll(self._engine.buffer.iterate, NEVER)
        assert records is not None
        self._iterator = records
        return records

    async def getone(self) -> ConsumerRecord[Any, Any]:
        """Wait for the next record. Cancelling loses none.

        Raises DeserializationError, CorruptBatchError, OffsetOutOfRangeError, UnknownTopicError and others for one
        partition, which stays at its position; GroupError; PollIntervalExceededError; ClosedError.
        """
        for record in self._iterator:
            return record
        return next(await self._iterate())

    async def poll(
        self, timeout_ms: int | None = 1_000, max_records: int | None = None
    ) -> list[ConsumerRecord[Any, Any]]:
        """Return up to ``max_records`` records as soon as there are some; none after ``timeout_ms``.

        ``timeout_ms`` None waits without limit; ``max_records`` None means ``max_poll_records``. Records of a
        partition are in order. Raises the errors of ``getone``; the next call raises an error behind good records.
        """
        return to_records(await self._poll(timeout_ms, max_records, None))

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int | None = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Like ``poll``, but by partition, and only of the named partitions if any. ``timeout_ms`` 0 doesn't wait."""
        only = frozenset(self._state(partition).partition for partition in partitions) or None
        by_partition: dict[TopicPartition, list[Rows]] = {}
        for rows in await self._poll(timeout_ms, max_records, only):
            by_partition.setdefault(TopicPartition(rows.topic, rows.partition), []).append(rows)
        return {partition: to_records(runs) for partition, runs in by_partition.items()}

    async def poll_arrow(
        self,
        timeout_ms: int | None = 1_000,
        max_records: int = 100_000,
        *,
        headers: bool = False,
        having: bytes | None = None,
    ) -> pyarrow.Table:
        """Return records as an Arrow table as soon as there are some; an empty table after ``timeout_ms``.

        The columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType,
        and on request headers (``ottla_client.arrow`` has their types). Keys and values are bytes: deserializers are
        not used. Rows of a partition are in order. Positions and commits work as with ``poll``. Raises the errors of
        ``getone``, and ConfigurationError without pyarrow and numpy (the extra ``arrow``).

        With ``having``, record batches in which these bytes don't occur are passed over, which is much faster than
        looking at their records; rows of other batches may not have the bytes either. The table then has how many
        records were passed over in its schema's metadata, as ``ottla.left_out``, and may be empty before the timeout.
        """
        from ..arrow import to_arrow

        if max_records < 1:
            raise ConfigurationError(f"max_records must be at least 1, not {max_records}")
        buffer = self._engine.buffer
        deadline = Deadline(None if timeout_ms is None else timeout_ms / 1000)
        before = buffer.left_out

        def take() -> list[Part] | None:
            parts = buffer.take_parts(max_records, having)
            return parts if parts or buffer.left_out > before else None

        table = to_arrow(await self._engine.poll(take, deadline) or (), headers=headers)
        if having is None:
            return table
        return table.replace_schema_metadata({"ottla.left_out": str(buffer.left_out - before)})

    async def _poll(
        self, timeout_ms: int | None, max_records: int | None, only: frozenset[TopicPartition] | None
    ) -> list[Rows]:
        count = self._settings.max_poll_records if max_records is None else max_records
        if count < 1:
            raise ConfigurationError(f"max_records must be at least 1, not {max_records}")
        buffer = self._engine.buffer
        deadline = Deadline(None if timeout_ms is None else timeout_ms / 1000)
        return await self._engine.poll(lambda: buffer.take(count, only) or None, deadline) or []

    def _state(self, partition: TopicPartition) -> PartitionState:
        return self._engine.state(partition)

    def _states(self, partitions: Collection[TopicPartition]) -> list[PartitionState]:
        return [self._state(partition) for partition in partitions or self.assignment()]

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to hand out; waits until it is known.

        Raises ConfigurationError for a partition that isn't assigned, RequestTimeoutError, the partition's error.
        """
        return await self._engine.resolve_position(self._state(partition), self._deadline())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at ``offset``. Also the way past a record that can't be read.

        If the log doesn't have the offset, the next fetch applies ``auto_offset_reset``.
        """
        if offset < 0:
            raise ConfigurationError(
                f"offset {offset} is negative; use seek_to_beginning() or seek_to_end() for the ends"
            )
        self._engine.seek(self._state(partition), offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record of these partitions, or of all assigned ones."""
        await self._seek_to(partitions, OffsetSpec.EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record; with read_committed, after the last record that is decided."""
        await self._seek_to(partitions, OffsetSpec.LATEST)

    async def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue at the committed offsets of these partitions, or of all assigned ones: after an aborted transaction.

        Waits for transactions that are about to commit offsets. A partition without a committed offset continues where
        ``auto_offset_reset`` says. Raises the errors of ``committed``.
        """
        states = self._states(partitions)
        commits = self._commits()
        found = await commits.stable([state.partition for state in states], self._deadline())
        commits.discard_revoked()
        for state in states:
            committed = found.get(state.partition)
            if self._engine.positions.get(state.partition) is not state:
                continue  # a rebalance has taken it
            if committed is None:
                self._engine.reset_by_policy(state)
            else:
                self._engine.seek(state, committed.offset)

    async def _seek_to(self, partitions: Collection[TopicPartition], end: int) -> None:
        states = self._states(partitions)
        self._engine.check()
        deadline = self._deadline()
        self._engine.reset(states, end)
        for state in states:
            await self._engine.resolve_position(state, deadline)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these partitions until ``resume``; buffered records are kept.

        Raises ConfigurationError for a partition that isn't assigned. A rebalance that revokes one ends its pause.
        """
        for state in [self._state(partition) for partition in partitions]:
            self._engine.buffer.halt(state)
            state.paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records of these partitions again."""
        for state in [self._state(partition) for partition in partitions]:
            state.paused = False
        self._engine.wake()

    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(state.partition for state in self._engine.positions if state.paused)

    def lag(self, partition: TopicPartition) -> int | None:
        """The number of offsets between the position and the end, as of the last fetch; None before the first one.

        With read_committed the end is after the last record that is decided. Sends no request.
        """
        state = self._state(partition)
        self._engine.buffer.sync()
        return state.lag(read_committed=self._settings.read_committed)

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit the offsets of the next records to read; None commits all records that were handed out.

        Raises ConfigurationError without a group_id; CommitFailedError when the group has given the partitions to
        other members; GroupError, which may be retriable; RequestTimeoutError.
        """
        commits = self._commits()
        if offsets is None:
            # Otherwise the next automatic commit would take these offsets back.
            self._engine.buffer.mark_processed()
            exact = commits.handed_out()
        else:
            exact = {
                TopicPartition(*partition): OffsetAndMetadata(each) if isinstance(each, int) else each
                for partition, each in offsets.items()
            }
        await commits.commit(exact, self._deadline())

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets, None where there is none; of all assigned partitions if you name none.

        Raises ConfigurationError without a group_id, GroupError, RequestTimeoutError.
        """
        commits = self._commits()
        wanted = [TopicPartition(*partition) for partition in partitions or self.assignment()]
        found = await commits.committed(wanted, self._deadline())
        return {partition: found.get(partition) for partition in wanted}

    def group_metadata(self) -> ConsumerGroupMetadata:
        """How the group knows this consumer, for a transaction that commits its offsets (KIP-447).

        Raises ConfigurationError without a group_id; GroupError, which may be retriable, while it is not a member.
        """
        return self._commits().group_metadata()

    def transaction_offsets(self) -> tuple[ConsumerGroupMetadata, dict[TopicPartition, OffsetAndMetadata]]:
        """The arguments of a transaction's ``send_offsets``: ``group_metadata()``, and the offsets of ``commit()``.

        While nothing is assigned, as before the group's first rebalance has ended, there are no offsets.

        Raises the errors of ``group_metadata``, CommitFailedError if the group took partitions away after their records
        were handed out, and ConfigurationError with ``enable_auto_commit``, which would commit the offsets whether or
        not the transaction is committed.
        """
        commits = self._commits()
        if self._settings.enable_auto_commit:
            raise ConfigurationError(
                "a transaction can't commit the offsets of a consumer that commits them itself: set"
                " enable_auto_commit=False"
            )
        return commits.transaction_offsets()

    def _commits(self) -> OffsetCommits:
        self._engine.check()
        if self._engine.commits is None:
            raise ConfigurationError("committed offsets belong to a group: set group_id")
        return self._engine.commits

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset whose timestamp is at or after a time in milliseconds; None where there is none yet.

        Takes any partitions, assigned or not. Raises UnknownTopicError, BrokerError, RequestTimeoutError.
        """
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise ConfigurationError(
                    f"{partition}: the timestamp {timestamp} is negative; use milliseconds since 1970"
                )
        return await self._find(timestamps)

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition's log. Raises the errors of ``offsets_for_times``."""
        return self._ends(await self._find(dict.fromkeys(_listed(partitions), OffsetSpec.EARLIEST)))

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record; with read_committed, after the last record that is decided.

        Raises the errors of ``offsets_for_times``.
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

    def metrics(self) -> Metrics:
        """The consumer's counts, under the names of Java's: values by name, by group.

        ``metrics()["consumer-fetch-manager-metrics"]["records-lag-max"]``; partitions have groups of their own,
        ``consumer-fetch-manager-metrics.orders-0``. Records count when they are decoded, up to 2,048 before you get
        them. Rates and averages are over about half a minute, times are in milliseconds. A call costs microseconds; it
        may come from any thread, before the start and after the close.
        """
        from .metrics import consumer_metrics

        return consumer_metrics(self._engine)

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions. Raises UnknownTopicError, which suggests similar names.

        Waits a second for a topic that was just created and that not all brokers know yet.
        """
        self._engine.check()
        known = await self._engine.cluster.wait_for_topic(topic, self._deadline(), grace=JUST_MADE)
        return sorted(known.partitions)

    partitions_for_topic = partitions_for

    async def topics(self) -> list[str]:
        """The names of all topics that this user may see, internal topics included. Raises RequestTimeoutError."""
        self._engine.check()
        return sorted(await self._engine.cluster.fetch_topics(None, self._deadline()))


def _listed(partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Raises ConfigurationError for a single partition, which is a collection too: of a name and a number."""
    if isinstance(partitions, TopicPartition):
        raise ConfigurationError(f"pass a list of partitions, also for a single one: [{partitions!r}]")
    return [TopicPartition(*partition) for partition in partitions]


async def partitions_of(consumer: Consumer, topics: Collection[str] | None) -> set[TopicPartition]:
    """The partitions that there are of topics, or of all but internal ones, for the commands. Raises ClientError."""
    found = await consumer._engine.cluster.fetch_topics(topics, consumer._deadline())
    return {
        TopicPartition(name, number)
        for name, topic in found.items()
        if topics is not None or not topic.is_internal
        for number in topic.partitions
    }


async def poll_rows(consumer: Consumer, *, timeout_ms: int, max_records: int) -> list[Rows]:
    """``Consumer.poll`` without an object for each record, for the commands."""
    return await consumer._poll(timeout_ms, max_records, None)


async def last_offsets(
    consumer: Consumer, partitions: Collection[TopicPartition], count: int
) -> dict[TopicPartition, int]:
    """The offset from which ``count`` records are left in each partition, or its start, for the commands.

    They are records that this consumer reads: no markers, no gaps of compaction, and with read_committed no aborted
    ones. Raises ClientError.
    """
    starts, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
    isolation = consumer._settings.isolation

    async def last(walk: LogWalk, each: TopicPartition) -> int:
        return await walk.last(count, starts[each], ends[each], isolation)

    found = await walks(consumer._engine.cluster, partitions, last, consumer._deadline())
    for outcome in found.values():
        if isinstance(outcome, ClientError):
            raise outcome
    return {each: offset for each, offset in found.items() if not isinstance(offset, ClientError)}


def positions_of(consumer: Consumer) -> dict[TopicPartition, int]:
    """The positions that are known, for the commands."""
    consumer._engine.buffer.sync()
    states = consumer._engine.positions
    return {state.partition: state.position for state in states if state.position is not None}
