"""What a broker does to its logs on a disk that loses what wasn't synced, and what has to be left of them.

Used by ``test_power_loss.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.support.clock import FakeClock
from tests.support.disk import Disk, Op, PluggedIn
from tests.support.jobs import Jobs

from ottla_broker.log.cleaner import CleanerSettings, LogCleaner
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.log.manager import LogManager
from ottla_protocol.records.batch import BatchHeader, assign_offset, read_header
from ottla_protocol.records.record import decode_records, encode_batch

FOLDER = "/data"
PRODUCER = 9
TOPIC_IDS = {"plain": bytes(15) + b"1", "compact": bytes(15) + b"2"}
CONFIGS = {
    "plain": LogConfig(segment_bytes=1500, index_interval_bytes=300, retention_ms=-1, retention_bytes=-1),
    "compact": LogConfig(
        segment_bytes=1500,
        index_interval_bytes=300,
        compact=True,
        delete=False,
        delete_retention_ms=0,
        min_cleanable_dirty_ratio=0.01,
    ),
}
KEYS = [b"a", b"b", b"c", b"d", b"e"]


class Broker:
    """The logs of one run of a broker."""

    def __init__(self, disk: Disk, plug: PluggedIn, clock: FakeClock) -> None:
        plug.disk = disk
        self.clock = clock
        self.jobs = Jobs()
        self.logs = LogManager(
            [FOLDER],
            CONFIGS["plain"],
            clock,
            self.jobs,
            Random(1),
            files=Files(64),  # type: ignore[arg-type]
        )
        settings = CleanerSettings(dedupe_buffer_size=1 << 16, io_buffer_size=1 << 16)
        self.cleaner = LogCleaner(self.logs, clock, settings, lambda log: log.log_end_offset)
        self.cleaner._background = self.jobs  # type: ignore[assignment]

    async def open(self, configs: Callable[[str], LogConfig | None] | None = None) -> Broker:
        await self.jobs.until(asyncio.ensure_future(self.logs.load(configs or CONFIGS.get)))
        self.logs.claim("cluster", 1)
        return self

    def create(self, topic: str) -> Log:
        return self.logs.create(topic, 0, TOPIC_IDS[topic], CONFIGS[topic]).open()

    def log(self, topic: str) -> Log | None:
        log = self.logs.get(topic, 0)
        if log is None:
            return None
        # What a partition does when it is served.
        log.open().assign_topic_id(TOPIC_IDS[topic])
        return log

    async def flush(self, log: Log) -> None:
        """Bring all of the log to the device."""
        await self.jobs.until(log.flushed(log.log_end_offset))

    async def clean(self, log: Log) -> None:
        """Compact all but the active segment."""
        chosen = self.cleaner._measure(log)
        if chosen.cleanable_bytes:
            await self.jobs.until(asyncio.ensure_future(self.cleaner._clean(chosen)))
            assert not self.cleaner.uncleanable

    async def stop(self) -> None:
        await self.jobs.until(asyncio.ensure_future(self.logs.close()))


@dataclass
class Expected:
    """What a partition holds, as far as it is known from the events before a power failure."""

    # The batches in the log, by base offset.
    current: dict[int, bytes] = field(default_factory=dict)
    # Every batch that was ever written at an offset.
    ever: dict[int, set[bytes]] = field(default_factory=dict)
    # Below this offset everything was promised to be on the device; below start it may be gone.
    promised: int = 0
    start: int = 0
    # Below this one epochs may be unknown, because records there were hidden or removed.
    highest_start: int = 0
    exists: bool = True
    truncated: bool = False

    def end(self) -> int:
        """The end of the records that were promised; after a truncation of those that may not be gone."""
        ends = (base + read_header(data).last_offset_delta + 1 for base, data in self.current.items())
        least = self.start if self.truncated else 0
        return max((end for end in ends if least < end <= self.promised), default=0)


class Story:
    """Follows the events of a run."""

    def __init__(self) -> None:
        self.partitions: dict[str, Expected] = {}

    def after_recovery(self, broker: Broker) -> Story:
        """The story that begins with what a power failure has left, and recovery has found."""
        later = Story()
        for topic, expected in self.partitions.items():
            log = broker.log(topic)
            if log is not None:
                later.partitions[topic] = replace(
                    expected,
                    current={header.base_offset: data for header, data in batches_of(log)},
                    ever={base: {*versions} for base, versions in expected.ever.items()},
                    promised=expected.promised if expected.exists else 0,
                    start=max(expected.start, log.log_start_offset),
                    exists=True,
                )
        return later

    def on_note(self, note: tuple[Any, ...]) -> None:
        kind, topic, *rest = note
        if kind == "created":
            old = self.partitions.get(topic)
            made = self.partitions[topic] = Expected()
            if old is not None:
                # The old partition's records may come back if the new one's folder isn't durable.
                made.ever = old.ever
            return
        expected = self.partitions[topic]
        if kind == "appended":
            base, data = rest
            expected.current[base] = data
            expected.ever.setdefault(base, set()).add(data)
        elif kind == "promised":
            expected.promised = max(expected.promised, rest[0])
        elif kind == "truncating":
            offset = rest[0]
            expected.truncated = True
            expected.promised = min(expected.promised, offset)
            expected.current = {
                base: data
                for base, data in expected.current.items()
                if base + read_header(data).last_offset_delta < offset
            }
            expected.start = min(expected.start, offset)
        elif kind == "starting":
            expected.start = max(expected.start, rest[0])
            expected.highest_start = max(expected.highest_start, rest[0])
        elif kind == "deleting":
            expected.exists = False
            expected.promised = 0


class Run:
    """One run of a broker, with chance deciding what it does."""

    def __init__(self, chance: Random, plug: PluggedIn, broker: Broker) -> None:
        self.chance = chance
        self.plug = plug
        self.broker = broker
        self.disk = plug.disk
        self.clock = broker.clock
        self.cleaned = 0
        self.epochs: dict[str, int] = {}
        self.sequences: dict[str, int] = {}

    async def play(self, steps: int) -> list[Op]:
        for topic in CONFIGS:
            log = self.broker.log(topic)
            if log is None:
                self.create(topic)
            else:
                self.learn(topic, log)
                if log.config.compact:
                    self.cleaned = log.log_end_offset
        for _ in range(steps):
            await self.step()
            await asyncio.sleep(0)
            if self.chance.random() < 0.5:
                self.broker.jobs.step()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        return self.disk.ops

    def create(self, topic: str) -> None:
        self.epochs[topic] = self.sequences[topic] = 0
        if CONFIGS[topic].compact:
            self.cleaned = 0
        self.disk.note(("created", topic))
        self.broker.create(topic)

    def learn(self, topic: str, log: Log) -> None:
        """Carry on where a log ends."""
        headers = [header for header, _ in batches_of(log)]
        entry = log.producers.producers.get(PRODUCER)
        last = [header.last_sequence for header in headers if header.producer_id == PRODUCER]
        self.sequences[topic] = max(last, default=-1) + 1 if entry is None else entry.last_sequence + 1
        # A follower may fetch more of the epoch it has, or of a later one.
        latest = max([0, log.epochs.latest, *(header.partition_leader_epoch for header in headers)])
        self.epochs[topic] = latest + self.chance.randint(0, 1)

    async def step(self) -> None:
        chance = self.chance
        topic = chance.choice(list(CONFIGS))
        log = self.broker.log(topic)
        if log is None:
            self.create(topic)
            return
        what = chance.choices(
            (
                "append",
                "promise",
                "roll",
                "truncate",
                "retain",
                "start",
                "checkpoint",
                "clean",
                "delete",
                "stop",
            ),
            (40, 12, 3, 3, 3, 2, 6, 6, 1, 1),
        )[0]
        await getattr(self, what)(topic, log)

    async def append(self, topic: str, log: Log) -> None:
        chance = self.chance
        rows = [
            (
                self.clock.now_ms(),
                chance.choice(KEYS),
                None if chance.random() < 0.1 else chance.randbytes(chance.randrange(90)),
                (),
            )
            for _ in range(chance.randint(1, 4))
        ]
        options: dict[str, int] = {}
        if chance.random() < 0.5:
            sequence = self.sequences[topic]
            options = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": sequence}
            self.sequences[topic] = sequence + len(rows)
        if chance.random() < 0.1:
            self.epochs[topic] += 1
        data = encode_batch(rows, **options)
        base = log.log_end_offset
        made = bytearray(data)
        assign_offset(made, 0, base, self.epochs[topic])
        self.disk.note(("appended", topic, base, bytes(made)))
        info = log.append(data, leader_epoch=self.epochs[topic], now_ms=self.clock.now_ms(), from_client=True)
        assert (info.first_offset, bytes(data)) == (base, bytes(made))

    async def promise(self, topic: str, log: Log) -> None:
        end = log.log_end_offset
        flushed = log.flushed(end)

        def done(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and future.exception() is None and end <= log.log_end_offset:
                self.disk.note(("promised", topic, end))

        flushed.add_done_callback(done)
        if self.chance.random() < 0.5:
            await asyncio.wait([flushed, asyncio.ensure_future(self.broker.jobs.drain())])

    async def roll(self, topic: str, log: Log) -> None:
        log.roll()

    async def truncate(self, topic: str, log: Log) -> None:
        if self.broker.logs.flusher.is_busy(log):
            await self.broker.jobs.drain()
        # A leader's epochs end where batches do.
        ends = [header.base_offset for header, _ in batches_of(log)]
        if log.config.compact:
            # Nothing is cleaned that may be truncated.
            ends = [end for end in ends if end >= self.cleaned]
        offset = self.chance.choice([*ends, log.log_end_offset])
        self.disk.note(("truncating", topic, offset))
        if self.chance.random() < 0.2:
            offset += 1000
            self.disk.note(("truncating", topic, 0))
            self.disk.note(("starting", topic, offset))
            log.truncate_fully_and_start_at(offset)
        else:
            log.truncate_to(offset)
        recorded = log.unflushed.truncation_recorded()
        if recorded is not None:
            await self.broker.jobs.until(recorded)
        self.learn(topic, log)

    async def retain(self, topic: str, log: Log) -> None:
        if log.config.compact:
            return
        kept = self.chance.choice(log.segments).base_offset
        size = sum(each.size for each in log.segments if each.base_offset >= kept)
        log.config = replace(log.config, retention_bytes=size)
        self.disk.note(("starting", topic, kept))
        log.delete_old_segments(self.clock.now_ms())
        self.clock.advance(self.chance.choice((0, 100)))

    async def start(self, topic: str, log: Log) -> None:
        offset = self.chance.randint(log.log_start_offset, log.log_end_offset)
        self.disk.note(("starting", topic, offset))
        log.advance_log_start_offset(offset)

    async def checkpoint(self, topic: str, log: Log) -> None:
        maintenance = self.broker.logs.maintenance
        task = self.chance.choice((maintenance.checkpoint_recovery_points, maintenance.checkpoint_log_starts))
        await self.broker.jobs.until(asyncio.ensure_future(task()))

    async def clean(self, topic: str, log: Log) -> None:
        if not log.config.compact or len(log.segments) < 2:
            return
        self.cleaned = log.active.base_offset
        await self.broker.clean(log)
        self.clock.advance(self.chance.choice((0, 100)))

    async def delete(self, topic: str, log: Log) -> None:
        await self.broker.jobs.drain()
        self.disk.note(("deleting", topic))
        self.broker.logs.delete(topic, 0)
        self.clock.advance(self.chance.choice((0, 100)))

    async def stop(self, topic: str, log: Log) -> None:
        await self.broker.jobs.drain()
        await self.broker.stop()
        for name in CONFIGS:
            stopped = self.broker.logs.get(name, 0)
            if stopped is not None and stopped.is_open:
                self.disk.note(("promised", name, stopped.log_end_offset))
        self.broker = await Broker(self.disk, self.plug, self.clock).open()
        for name in CONFIGS:
            found = self.broker.log(name)
            if found is not None:
                self.learn(name, found)


def batches_of(log: Log) -> list[tuple[BatchHeader, bytes]]:
    return [(header, bytes(data)) for segment in log.segments for _, header, data in segment.batches()]


def check(broker: Broker, story: Story) -> None:
    for topic, expected in story.partitions.items():
        log = broker.logs.get(topic, 0)
        if log is None:
            assert not expected.end(), f"{topic} is gone"
            continue
        assert log.failure is None, log.failure
        log.open()
        check_log(log, expected)


def check_log(log: Log, expected: Expected) -> None:
    found = batches_of(log)
    end = 0
    for number, (header, data) in enumerate(found):
        if log.config.compact:
            assert header.base_offset >= end or not number
            check_compacted(header, data, expected)
        else:
            assert header.base_offset == end or not number, "a gap"
            assert data in expected.ever[header.base_offset], "invented"
        end = header.last_offset + 1
    assert log.log_end_offset >= end
    assert log.log_start_offset <= log.log_end_offset
    if expected.exists:
        assert log.log_end_offset >= expected.end(), "promised records are gone"
        assert not expected.end() or log.topic_id == TOPIC_IDS[log.topic], "the topic id is gone"
        assert log.log_start_offset <= expected.start or not expected.end(), "the log begins too late"
        check_promised(log, found, expected)
    check_epochs(log, found, expected)


def check_compacted(header: BatchHeader, data: bytes, expected: Expected) -> None:
    written = {
        (each.offset, each.key, each.value)
        for versions in expected.ever.values()
        for version in versions
        for each in decode_records(version)
    }
    for each in decode_records(data):
        assert (each.offset, each.key, each.value) in written, "invented"


def check_promised(log: Log, found: list[tuple[BatchHeader, bytes]], expected: Expected) -> None:
    present = {header.base_offset: data for header, data in found}
    if not log.config.compact:
        for base, data in expected.current.items():
            last = base + read_header(data).last_offset_delta
            if last < expected.promised and last >= expected.start:
                assert present.get(base) == data, f"promised records from {base} are gone"
        return
    latest: dict[bytes | None, tuple[int, bytes | None]] = {}
    for base in sorted(expected.current):
        for each in decode_records(expected.current[base]):
            if each.offset < expected.promised and each.offset >= expected.start:
                latest[each.key] = (each.offset, each.value)
    got: dict[bytes | None, tuple[int, bytes | None]] = {}
    for _, data in found:
        for each in decode_records(data):
            got[each.key] = (each.offset, each.value)
    for key, (offset, value) in latest.items():
        if value is None:
            # A tombstone may be gone with what it deleted.
            assert key not in got or got[key][0] >= offset, f"{key!r} came back"
        else:
            assert key in got, f"{key!r} is gone"
            assert got[key][0] >= offset, f"{key!r} is old"


def check_epochs(log: Log, found: list[tuple[BatchHeader, bytes]], expected: Expected) -> None:
    ends: dict[int, int] = {}
    last = -1
    for header, _ in found:
        assert header.partition_leader_epoch >= last, "epochs go back"
        last = header.partition_leader_epoch
        ends[last] = header.last_offset + 1
    if found and found[-1][0].last_offset >= max(expected.start, expected.highest_start):
        assert log.epochs.latest >= last
    starts = {}
    for header, _ in found:
        starts.setdefault(header.partition_leader_epoch, header.base_offset)
    for epoch, end in ends.items():
        if end <= max(log.log_start_offset, expected.highest_start):
            # The records were removed, and have come back.
            continue
        known, known_end = log.epoch_end_offset(epoch)
        assert known == epoch, f"epoch {epoch} is unknown"
        following = min(
            (start for other, start in starts.items() if other > epoch), default=log.log_end_offset
        )
        assert end <= known_end <= following or log.config.compact, f"epoch {epoch} ends at {known_end}"


def carry_on(log: Log, epoch: int) -> None:
    """A producer's last batch is known, and the next one accepted."""
    last = None
    for header, data in batches_of(log):
        if header.producer_id == PRODUCER and header.base_offset >= log.log_start_offset:
            last = header, data
    sequence = 0
    if last is not None and not log.config.compact:
        header, data = last
        copy = bytearray(data)
        copy[:8] = bytes(8)
        info = log.append(copy, leader_epoch=epoch, now_ms=0, from_client=True)
        assert info.duplicate
        assert info.last_offset == header.last_offset
        sequence = header.last_sequence + 1
    elif (entry := log.producers.producers.get(PRODUCER)) is not None:
        sequence = entry.last_sequence + 1
    batch = encode_batch(
        [(0, b"a", b"more", ())], producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence
    )
    end = log.log_end_offset
    assert log.append(batch, leader_epoch=epoch, now_ms=0, from_client=True).first_offset == end
