"""Samples how far groups are behind, and keeps a week of samples in ``__ottla_group_lag``.

Each broker samples the groups it coordinates; the controller samples those with offsets in ZooKeeper. A sample's place
in the compacted topic depends only on its time and on the group's partition of ``__consumer_offsets``, so when a
coordinator moves, the next one continues in the same ring, and nothing has to be handed over or loaded.

The work is done between requests, a few milliseconds at a time. The ends of partitions without a replica here are asked
of their leaders; when such a record was written is known only to within one sampling interval.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup
from ottla_broker.coordinator.share.state_batches import ShareKey, ShareState
from ottla_broker.events import get_logger
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_broker.metrics.lag_reader import LagReader
from ottla_broker.metrics.trend import Trend
from ottla_broker.store.api import NoNodeError, StoreError, children_of
from ottla_broker.store.keys import BadNodeError, ConsumerOffsetNode
from ottla_broker.tasks import TimeSlice
from ottla_protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla_protocol.group_lag import (
    COARSE,
    IN_ZOOKEEPER,
    KIND_IN_ZOOKEEPER,
    HistoryReader,
    LagSample,
    levels_of,
    number_of,
    records_of,
)
from ottla_protocol.lag import unread
from ottla_protocol.messages.group_lag_records import GroupLagState
from ottla_protocol.partitioning import LAG_TOPIC, partition_for
from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.formats import decode_any, iter_headers
from ottla_protocol.records.record import encode_batch

if TYPE_CHECKING:
    from ottla_broker.clock import Clock
    from ottla_broker.coordinator.group.coordinator import GroupCoordinator
    from ottla_broker.coordinator.group.group_shard import AnyGroup
    from ottla_broker.log.manager import LogManager
    from ottla_broker.replica.manager import ReplicaManager
    from ottla_broker.store.api import Store
    from ottla_protocol.records.record import Record

_log = get_logger()

TopicPartition = tuple[str, int]
Row = tuple[bytes, bytes]

_CLASSIC, _CONSUMER, _SHARE = range(3)
_MOST_REMOTE: Final = 20_000
"""Partitions without a replica here whose ends are asked for."""
_ENDS_KEPT: Final = 32
"""How many samples back the ends of those partitions are remembered."""
_MOST_NODES: Final = 5_000
"""Offsets in ZooKeeper that are read for one sample."""
_SHARE_SECONDS: Final = 15.0
"""The timeout for the state of a share partition."""
_BATCH_BYTES: Final = 64_000
"""The size of the batches in which samples are kept, before compression."""
_GZIP: Final = 1
_EARLY_SECONDS: Final = 0.01
"""Timers may fire a little early; a sample must not get the number of the one before it."""


class Leaders(Protocol):
    """The other brokers, as leaders of partitions. Each raises KafkaError."""

    async def bounds(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The logs' starts and high watermarks, as far as the broker knows them."""

    async def append(self, broker_id: int, topic: str, index: int, batch: bytes) -> None:
        """Have the leader of a partition append a batch."""


class Settings(NamedTuple):
    """``most_groups``: of those that this broker samples, the rest is left out."""

    interval_ms: int
    most_groups: int


@dataclass(slots=True)
class LagEnvironment:
    """The parts that the history works with.

    Attributes:
        partitions_of: how many partitions an internal topic has or will have.
        leader_of: the leader of a partition; None or -1: there is none.
        leaders: None for a broker that stands alone.
        share_state: the state of a share partition; None: there are no share groups.
        store: the store whose ``/consumers`` is sampled while ``reads_store()``.
    """

    broker_id: int
    clock: Clock
    replicas: ReplicaManager
    logs: LogManager
    groups: GroupCoordinator
    partitions_of: Callable[[str], int]
    leader_of: Callable[[str, int], int | None]
    ensure_topic: Callable[[str], Awaitable[object]]
    leaders: Leaders | None
    share_state: Callable[[ShareKey, Callable[[ShareState | KafkaError], None]], None] | None
    store: Store
    reads_store: Callable[[], bool]


class _Offset(NamedTuple):
    """An offset that a group reads next, and how many records after it are done with (of share groups)."""

    topic: str
    partition: int
    offset: int
    done: int = 0


@dataclass(slots=True)
class _Group:
    """The memory of a group from one sample to the next.

    Attributes:
        most: the largest lag since the last sample of the coarse level.
        round: the last sample that found the group.
        seen: the offsets of a group in ZooKeeper, and since when they are the same (-1: unknown), because ZooKeeper has
            no commit times.
    """

    kind: int
    trend: Trend = field(default_factory=Trend)
    most: int = -1
    round: int = 0
    seen: tuple[object, int] | None = None


class _Sampled(NamedTuple):
    """A group's sample. ``source``: the group's partition of ``__consumer_offsets``, or IN_ZOOKEEPER."""

    source: int
    group: _Group
    state: GroupLagState


class LagHistory:
    """Owned by the loop thread.

    Attributes:
        latest: the last sample of each group, by kind and id; ``sampled_ms`` is its time.
        left_out: how many groups the last sample left out, because of ``most_groups``.
        failures: how many samples, or parts of them, could not be taken or kept.
    """

    def __init__(self, settings: Settings, environment: LagEnvironment) -> None:
        self.latest: dict[tuple[int, str], GroupLagState] = {}
        self.sampled_ms = 0
        self.left_out = 0
        self.failures = 0
        self._settings = settings
        self._environment = environment
        self._clock = environment.clock
        self._reader = LagReader(environment.replicas, environment.logs)
        self._groups: dict[tuple[int, str], _Group] = {}
        self._round = 0
        # Ends of partitions without a replica here, at the last samples.
        self._ends: dict[TopicPartition, deque[tuple[int, int]]] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._warned: set[str] = set()
        self._slice = TimeSlice(self._clock)
        # A history of many groups takes seconds to read.
        self._reading = asyncio.Lock()

    async def run(self) -> None:
        """Take a sample each interval, for ever."""
        interval = self._settings.interval_ms
        while True:
            left = interval - self._clock.now_ms() % interval
            await self._clock.sleep(left / 1000 + _EARLY_SECONDS)
            await self.sample()

    async def sample(self) -> None:
        now_ms = self.sampled_ms = self._clock.now_ms()
        self._round += 1
        self.left_out = 0
        self._slice.begin()
        self._reader.begin()
        found: dict[int, list[_Sampled]] = {}
        await self._ask_ends(now_ms)
        for sample in (self._coordinated, self._shared, self._in_zookeeper):
            async for each in sample(now_ms):
                found.setdefault(each.source, []).append(each)
        self._forget()
        if found:
            await self._keep(now_ms, found)

    # Sampling

    async def _coordinated(self, now_ms: int) -> AsyncIterator[_Sampled]:
        """Sample the groups with offsets that this broker coordinates."""
        for group in self._environment.groups.groups:
            if not len(group.offsets):
                continue
            kind = _CONSUMER if isinstance(group, ConsumerGroup) else _CLASSIC
            entry = self._entry(kind, group.group_id)
            if entry is None:
                continue
            committed = _committed(group)
            measure = await self._measured(group.group_id, [offset for offset, _ in committed], now_ms)
            commit_ms = max((at for _, at in committed), default=0)
            yield _Sampled(group.shard.index, entry, self._record(entry, measure, max(0, now_ms - commit_ms)))

    async def _shared(self, now_ms: int) -> AsyncIterator[_Sampled]:
        """Sample the share groups that this broker coordinates."""
        async for source, group_id, offsets in self._share_groups():
            entry = self._entry(_SHARE, group_id) if offsets else None
            if entry is not None:
                measure = await self._measured(group_id, offsets, now_ms)
                yield _Sampled(source, entry, self._record(entry, measure, -1))

    async def _in_zookeeper(self, now_ms: int) -> AsyncIterator[_Sampled]:
        """Sample the groups with offsets in ZooKeeper, if this broker is the controller."""
        async for group_id, offsets in self._groups_in_zookeeper():
            entry = self._entry(KIND_IN_ZOOKEEPER, group_id) if offsets else None
            if entry is not None:
                measure = await self._measured(group_id, offsets, now_ms)
                age_ms = -1
                if entry.seen is None or entry.seen[0] != offsets:
                    # At the first look the commit time is unknown.
                    entry.seen = offsets, -1 if entry.seen is None else now_ms
                if entry.seen[1] >= 0:
                    age_ms = max(0, now_ms - entry.seen[1])
                yield _Sampled(IN_ZOOKEEPER, entry, self._record(entry, measure, age_ms))

    def _entry(self, kind: int, group_id: str) -> _Group | None:
        """Return what is known of a group; None: there are too many."""
        found = self._groups.get((kind, group_id))
        if found is None:
            if len(self._groups) >= self._settings.most_groups:
                self.left_out += 1
                return None
            found = self._groups[kind, group_id] = _Group(kind)
        found.round = self._round
        return found

    async def _measured(self, group_id: str, offsets: Iterable[_Offset], now_ms: int) -> _Measure:
        measure = _Measure(self._reader, self._ends, self._starts, group_id, now_ms)
        for each in offsets:
            for _ in measure.add(each):
                if self._slice.is_over:
                    await self._slice.next()
        return measure

    def _record(self, entry: _Group, measure: _Measure, commit_age_ms: int) -> GroupLagState:
        """Make the group's sample, and add it to the group's trend and to ``latest``."""
        records = measure.records if measure.known else -1
        slope = math.nan
        if measure.known:
            at = self._clock.monotonic()
            growth = entry.trend.slope(at, records)
            slope = math.nan if growth is None else growth
            entry.trend.add(at, records)
        entry.most = max(entry.most, records)
        state = GroupLagState(
            group_id=measure.group_id,
            kind=entry.kind,
            records=records,
            most_records=records,
            lag_ms=measure.lag_ms if measure.known else -1,
            commit_age_ms=commit_age_ms,
            slope=slope,
            partitions=measure.known + measure.unknown,
            unknown_partitions=measure.unknown,
        )
        self.latest[entry.kind, measure.group_id] = state
        return state

    async def _share_groups(self) -> AsyncIterator[tuple[int, str, list[_Offset]]]:
        """The share groups that this broker coordinates, with the starts of their share partitions."""
        shares, ask = self._environment.groups.shares, self._environment.share_state
        if shares is None or ask is None:
            return
        for group in list(shares.groups.values()):
            offsets = []
            for topic_id, topic in list(group.initialized.items()):
                for index in sorted(topic.partitions):
                    try:
                        state = await self._share_state(ShareKey(group.group_id, topic_id, index))
                    except (KafkaError, TimeoutError) as error:
                        self._failed("the state of a share partition isn't known", error)
                        continue
                    if state.start >= 0:
                        offsets.append(_Offset(topic.name, index, state.start, max(0, state.completed)))
            yield group.shard.index, group.group_id, offsets

    async def _share_state(self, key: ShareKey) -> ShareState:
        answered: asyncio.Future[ShareState | KafkaError] = asyncio.get_running_loop().create_future()

        def answer(state: ShareState | KafkaError) -> None:
            if not answered.done():
                answered.set_result(state)

        assert self._environment.share_state is not None
        self._environment.share_state(key, answer)
        async with self._clock.timeout(_SHARE_SECONDS):
            found = await answered
        if isinstance(found, KafkaError):
            raise found
        return found

    async def _groups_in_zookeeper(self) -> AsyncIterator[tuple[str, list[_Offset]]]:
        """The groups of the coordinators of 2012 and of Kafka 0.8, with their offsets."""
        if not self._environment.reads_store():
            return
        store, left = self._environment.store, _MOST_NODES
        try:
            for group_id in await children_of(store, "/consumers"):
                offsets: list[_Offset] = []
                for topic in await children_of(store, f"/consumers/{group_id}/offsets"):
                    for name in await children_of(store, f"/consumers/{group_id}/offsets/{topic}"):
                        left -= 1
                        if left < 0:
                            self.left_out += 1
                            return
                        offset = await self._offset_node(group_id, topic, name)
                        if offset is not None:
                            offsets.append(offset)
                yield group_id, offsets
        except StoreError as error:
            self._failed("offsets in ZooKeeper can't be read", error)

    async def _offset_node(self, group_id: str, topic: str, name: str) -> _Offset | None:
        if not (name.isascii() and name.isdecimal()) or len(name) > 9:
            return None
        path = ConsumerOffsetNode.path(group_id, topic, int(name))
        try:
            data, _ = await self._environment.store.get(path)
            return _Offset(topic, int(name), ConsumerOffsetNode.decode(path, data))
        except (NoNodeError, BadNodeError):
            # Deleted since, or written by something else: it is no offset of this group.
            return None

    def _forget(self) -> None:
        """Forget groups that are gone, or that another broker coordinates."""
        gone = [key for key, entry in self._groups.items() if entry.round != self._round]
        for key in gone:
            del self._groups[key]
            self.latest.pop(key, None)
        if gone:
            self._reader.keep({group_id for _, group_id in self._groups})

    # Partitions without a replica here

    async def _ask_ends(self, now_ms: int) -> None:
        """Ask leaders for the ends of partitions that have no replica here."""
        leaders = self._environment.leaders
        if leaders is None:
            return
        wanted: dict[int, list[TopicPartition]] = {}
        asked: set[TopicPartition] = set()
        time_slice = TimeSlice(self._clock)
        for group in self._environment.groups.groups:
            for each, _ in _committed(group):
                key = (each.topic, each.partition)
                if key not in asked and self._reader.find(*key)[1] is None and len(asked) < _MOST_REMOTE:
                    leader = self._environment.leader_of(*key)
                    if leader is not None and leader >= 0 and leader != self._environment.broker_id:
                        asked.add(key)
                        wanted.setdefault(leader, []).append(key)
                if time_slice.is_over:
                    await time_slice.next()
        for leader, partitions in wanted.items():
            try:
                bounds = await leaders.bounds(leader, partitions)
            except KafkaError as error:
                self._failed("another broker doesn't say how long its partitions are", error)
                continue
            for key, (start, end) in bounds.items():
                self._ends.setdefault(key, deque(maxlen=_ENDS_KEPT)).append((now_ms, end))
                self._starts[key] = start
        for key in self._ends.keys() - asked:
            del self._ends[key], self._starts[key]

    # Keeping

    async def _keep(self, now_ms: int, found: Mapping[int, Sequence[_Sampled]]) -> None:
        number = number_of(now_ms, self._settings.interval_ms)
        try:
            await self._environment.ensure_topic(LAG_TOPIC)
        except (KafkaError, StoreError, ConnectionError) as error:
            self._failed(f"topic {LAG_TOPIC} can't be made", error)
            return
        count = self._environment.partitions_of(LAG_TOPIC)
        rows: dict[int, list[Row]] = {}
        for level in levels_of(number):
            for source, groups in found.items():
                states = [each.state for each in groups]
                if level is COARSE:
                    states = [_with_most(each.group, each.state) for each in groups]
                made = rows.setdefault(partition_of(source, count), [])
                made.extend(records_of(level, number, source, now_ms, states))
                await asyncio.sleep(0)
        for index, of_partition in rows.items():
            for batch in _batches(of_partition):
                await self._append(index, now_ms, batch)

    async def _append(self, index: int, now_ms: int, rows: Sequence[Row]) -> None:
        batch = encode_batch([(now_ms, key, value, ()) for key, value in rows], codec=_GZIP)
        environment = self._environment
        partition = environment.replicas.partition(LAG_TOPIC, index)
        try:
            if partition is not None and partition.is_led_here:
                partition.append_internal(batch, now_ms)
                return
            leader = environment.leader_of(LAG_TOPIC, index)
            if environment.leaders is None or leader is None or leader < 0 or leader == environment.broker_id:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{LAG_TOPIC}:{index} has no leader")
            await environment.leaders.append(leader, LAG_TOPIC, index, bytes(batch))
        except KafkaError as error:
            self._failed("samples of groups' lag are lost", error)
        # Encoding takes a millisecond or two.
        await asyncio.sleep(0)

    def _failed(self, what: str, error: Exception) -> None:
        """Count a failure, and log the first of its kind."""
        self.failures += 1
        if what not in self._warned:
            self._warned.add(what)
            _log.warning("lag history is incomplete", what=what, reason=str(error))

    # Reading

    async def history(self, group_id: str, since_ms: int) -> list[LagSample]:
        """The samples of a group since a time, from this broker's replica. One reader works at a time.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER without a replica, whose message names the leader; of the log.
        """
        async with self._reading:
            return await self._history(group_id, since_ms)

    async def _history(self, group_id: str, since_ms: int) -> list[LagSample]:
        environment = self._environment
        source = partition_for(group_id, environment.partitions_of(OFFSETS_TOPIC))
        count = environment.partitions_of(LAG_TOPIC)
        reader = HistoryReader(group_id, source, since_ms)
        for index in {partition_of(each, count) for each in (source, IN_ZOOKEEPER)}:
            partition = environment.replicas.partition(LAG_TOPIC, index)
            if partition is None:
                leader = environment.leader_of(LAG_TOPIC, index)
                if leader is None:
                    continue  # Nothing has been kept yet.
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"this broker has no replica of {LAG_TOPIC}:{index}; ask broker {leader}",
                )
            _ = partition.high_watermark  # which opens the log
            first = partition.log.reader.offset_for_timestamp(since_ms)
            if first is None:
                continue
            for chunk in partition.scan(first[0]):
                try:
                    for position, header in iter_headers(chunk):
                        for record in decode_any(chunk, position, header):
                            self._read(reader, record)
                        await asyncio.sleep(0)
                except CorruptRecordError as error:
                    self._failed(f"{LAG_TOPIC} can't be read", error)
        return reader.samples()

    def _read(self, reader: HistoryReader, record: Record) -> None:
        try:
            reader.add(record.key, record.value)
        except ProtocolError as error:
            self._failed(f"{LAG_TOPIC} has other records", error)


class _Measure:
    """A group's lag, summed up over its partitions."""

    __slots__ = (
        "_ends",
        "_now_ms",
        "_reader",
        "_starts",
        "group_id",
        "known",
        "lag_ms",
        "records",
        "unknown",
    )

    def __init__(
        self,
        reader: LagReader,
        ends: Mapping[TopicPartition, Sequence[tuple[int, int]]],
        starts: Mapping[TopicPartition, int],
        group_id: str,
        now_ms: int,
    ) -> None:
        self.group_id = group_id
        self.records = self.known = self.unknown = 0
        self.lag_ms = -1
        self._reader = reader
        self._ends = ends
        self._starts = starts
        self._now_ms = now_ms

    def add(self, place: _Offset) -> Iterator[None]:
        """Count a partition in. Yields after each few milliseconds of work."""
        yield
        partition, end = self._reader.find(place.topic, place.partition)
        if partition is not None and end is not None:
            records, age_ms = yield from self._reader.behind(
                self.group_id, partition, place.offset, end, self._now_ms, place.done
            )
        else:
            ends = self._ends.get((place.topic, place.partition))
            if not ends:
                self.unknown += 1
                return
            start = self._starts[place.topic, place.partition]
            records = unread(place.offset, start, ends[-1][1], place.done)
            first = max(place.offset, start)
            age_ms = max(0, self._now_ms - _reached(ends, first)) if records else 0
        self.known += 1
        self.records += records
        if age_ms is not None:
            self.lag_ms = max(self.lag_ms, age_ms)


def _reached(ends: Sequence[tuple[int, int]], offset: int) -> int:
    """About when a partition became longer than ``offset``: the time of the first sample that found it so."""
    return next(at for at, end in ends if end > offset)


def _committed(group: AnyGroup) -> list[tuple[_Offset, int]]:
    """The committed offsets with the times of their commits, as they are now."""
    return [
        (_Offset(topic, index, committed.offset), committed.commit_ms)
        for topic, partitions in group.offsets.topics()
        for index, committed in partitions.items()
    ]


def _with_most(entry: _Group, state: GroupLagState) -> GroupLagState:
    """The state for a coarser level, with the largest lag since that level's last sample."""
    made = GroupLagState(**{name: getattr(state, name) for name in state.__slots__})
    made.most_records, entry.most = entry.most, -1
    return made


def _batches(rows: Sequence[Row]) -> Iterable[list[Row]]:
    """Rows in batches of a bounded size."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        size += len(row[0]) + len(row[1])
        if batch and size > _BATCH_BYTES:
            yield batch
            batch, size = [], len(row[0]) + len(row[1])
        batch.append(row)
    if batch:
        yield batch


def partition_of(source: int, count: int) -> int:
    """The partition of the topic that has a source's records."""
    return source % count
