"""Logs on a disk that loses what wasn't synced: the plug is pulled after every step, and the log opened again.

A run does what a broker does: appends, fsyncs, rolls, truncates, removes old segments, writes checkpoints, compacts,
deletes and creates partitions, stops and starts. For each of its steps on the disk, some of the disks that a power
failure may leave are opened by the real code, which recovers and goes on under the same threat.

``OTTLA_POWER_RUNS`` sets the number of runs, ``OTTLA_FAULT_SEED`` the first one's seed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from tests.support.clock import FakeClock
from tests.support.disk import Disk, Op, PluggedIn, crashes

from ottla_broker.log import names
from ottla_broker.log.log import Log
from ottla_protocol.records.batch import assign_offset
from ottla_protocol.records.record import encode_batch

from .power_loss import FOLDER, TOPIC_IDS, Broker, Run, Story, batches_of, carry_on, check

RUNS = int(os.environ.get("OTTLA_POWER_RUNS", "1"))
FIRST = int(os.environ.get("OTTLA_FAULT_SEED", "1"))


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Iterator[PluggedIn]:
    logging.disable(logging.WARNING)
    try:
        yield PluggedIn(monkeypatch)
    finally:
        logging.disable(logging.NOTSET)


async def start(disk: Disk, plug: PluggedIn) -> Broker:
    return await Broker(disk, plug, FakeClock()).open()


async def survive(disk: Disk, story: Story, plug: PluggedIn, chance: Random) -> None:
    """Start on what is left of a disk, check it, and go on; sometimes until the plug is pulled again."""
    first = len(disk.ops)
    broker = await start(disk, plug)
    check(broker, story)
    what = chance.random()
    if what < 0.1:
        later = story.after_recovery(broker)
        ops = await Run(chance, plug, broker).play(12)
        await pull(ops, later, plug, chance, most=12, first=first, lives=1)
    elif what < 0.3:
        for topic in story.partitions:
            log = broker.log(topic)
            if log is not None:
                carry_on(log, 1000)
        await broker.stop()
        ends = {log.topic: log.log_end_offset for log in broker.logs.logs()}
        broker = await start(disk, plug)
        for log in broker.logs.logs():
            assert log.open().log_end_offset == ends[log.topic]
            batches_of(log)


async def pull(
    ops: list[Op], story: Story, plug: PluggedIn, chance: Random, *, most: int, first: int = 0, lives: int = 2
) -> None:
    """Start on ``most`` disks that power failures may leave of a recording from step ``first`` on."""
    for number, disk in crashes(ops, chance, story.on_note, each=1, most=most, first=first):
        try:
            if lives > 1:
                await survive(disk, story, plug, chance)
            else:
                check(await start(disk, plug), story)
        except BaseException as error:
            error.add_note(f"the plug was pulled after step {number}: {ops[number]!r:.300}")
            raise


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
async def test_the_plug_is_pulled(seed: int, plug: PluggedIn, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(seed)
    if chance.random() < 0.5:
        # As with many logs.
        monkeypatch.setattr("ottla_broker.log.manager._SYNC_ALL_ABOVE", 0)
    broker = await start(Disk(), plug)
    ops = await Run(chance, plug, broker).play(120)
    await pull(ops, Story(), plug, chance, most=len(ops))


def leftovers(disk: Disk, first: int = 0, count: int = 1) -> Iterator[Disk]:
    """Disks that power failures may leave after each step from ``first`` on, ``count`` of each."""
    steps = len(disk.ops) - first
    for _, left in crashes(
        disk.ops, Random(1), lambda note: None, each=count, most=steps * count, first=first
    ):
        yield left


def finally_left(disk: Disk, count: int = 40) -> Iterator[Disk]:
    """Disks that a power failure may leave after the last step."""
    yield from leftovers(disk, len(disk.ops) - 1, count)


def append(log: Log, records: int = 1, *, epoch: int = 0, size: int = 10, producer: int = -1) -> None:
    rows = [(FakeClock().now_ms(), b"k", bytes(size), ()) for _ in range(records)]
    options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0} if producer >= 0 else {}
    log.append(encode_batch(rows, **options), leader_epoch=epoch, now_ms=0, from_client=True)


async def checkpoint(broker: Broker) -> None:
    await broker.jobs.until(asyncio.ensure_future(broker.logs.maintenance.checkpoint_recovery_points()))


async def record(broker: Broker, log: Log) -> None:
    recorded = log.unflushed.truncation_recorded()
    assert recorded is not None
    await broker.jobs.until(recorded)


def starts(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


async def test_the_marker_of_a_clean_stop_does_not_come_back(plug: PluggedIn) -> None:
    disk = Disk()
    broker = await start(disk, plug)
    await broker.stop()
    await start(disk, plug)
    for left in finally_left(disk):
        assert f"{FOLDER}/{names.CLEAN_SHUTDOWN}" not in left.tree()


async def test_what_was_flushed_has_its_folder_and_its_topic_id(plug: PluggedIn) -> None:
    disk = Disk()
    broker = await start(disk, plug)
    log = broker.create("plain")
    append(log)
    await broker.flush(log)
    for left in finally_left(disk):
        found = (await start(left, plug)).logs.get("plain", 0)
        assert found is not None
        assert (found.open().log_end_offset, found.topic_id) == (1, TOPIC_IDS["plain"])


async def test_a_topic_id_that_was_lost_is_assigned_again(plug: PluggedIn) -> None:
    disk = Disk()
    broker = await start(disk, plug)
    log = broker.create("plain")
    path = f"{log.path}/{names.PARTITION_METADATA}"
    broker.logs.files.write_all(path, bytes(44))
    broker = await start(disk, plug)
    found = broker.log("plain")
    assert found is not None
    assert found.topic_id == TOPIC_IDS["plain"]
    assert found.failure is None
    append(found)
    await broker.flush(found)
    for left in finally_left(disk):
        again = (await start(left, plug)).logs.get("plain", 0)
        assert again is not None
        assert again.topic_id == TOPIC_IDS["plain"]


async def test_a_truncation_leaves_no_gap(plug: PluggedIn) -> None:
    disk = Disk()
    broker = await start(disk, plug)
    log = broker.create("plain")
    for _ in range(4):
        append(log, 2)
        append(log, 2)
        log.roll()
    await broker.flush(log)
    await broker.jobs.drain()
    await checkpoint(broker)
    first = len(disk.ops)
    log.truncate_to(2)
    await record(broker, log)
    for left in leftovers(disk, first, 4):
        found = (await start(left, plug)).log("plain")
        assert found is not None
        ends = [0, *(header.last_offset + 1 for header, _ in batches_of(found))]
        assert [header.base_offset for header, _ in batches_of(found)] == ends[:-1]
        assert 2 <= found.log_end_offset == ends[-1]
    for left in finally_left(disk):
        segments = [path for path in left.tree() if path.endswith(names.LOG)]
        assert [len(left.tree()[path]) for path in segments] == [log.active.size]


async def test_records_are_written_over_truncated_ones_once_the_recovery_point_is_lower(
    plug: PluggedIn,
) -> None:
    disk = Disk()
    broker = await start(disk, plug)
    log = broker.create("plain")
    append(log, 10)
    append(log, 10)
    log.roll()
    append(log, 10)
    await broker.flush(log)
    await checkpoint(broker)
    log.truncate_to(10)
    await record(broker, log)
    append(log, 5, epoch=1)
    append(log, 5, epoch=1)
    log.roll()
    append(log, 10, epoch=1)
    for left in finally_left(disk, 100):
        found = (await start(left, plug)).log("plain")
        assert found is not None
        end = 0
        for header, _ in batches_of(found):
            assert header.base_offset == end
            end = header.last_offset + 1


async def test_the_recovery_point_is_not_above_what_was_flushed(plug: PluggedIn) -> None:
    broker = await start(Disk(), plug)
    log = broker.create("plain")
    for _ in range(3):
        append(log)
        log.roll()
    # The jobs that bring the rolled segments to the device wait.
    log.config = replace(log.config, retention_bytes=0)
    log.delete_old_segments(0)
    assert (starts(log), log.recovery_point) == ([3], 0)
    log.truncate_fully_and_start_at(1000)
    assert (starts(log), log.recovery_point) == ([1000], 0)


@pytest.mark.parametrize("many", [0, 64])
@pytest.mark.parametrize("what", ["epoch", "producer"])
async def test_a_clean_stop_leaves_epochs_and_producers(
    plug: PluggedIn, monkeypatch: pytest.MonkeyPatch, many: int, what: str
) -> None:
    monkeypatch.setattr("ottla_broker.log.manager._SYNC_ALL_ABOVE", many)
    disk = Disk()
    broker = await start(disk, plug)
    append(broker.create("plain"))
    await broker.stop()
    broker = await start(disk, plug)
    log = broker.log("plain")
    assert log is not None
    if what == "epoch":
        append(log, epoch=3)
    else:
        append(log, producer=7)
    first = len(disk.ops)
    await broker.stop()
    for left in leftovers(disk, first, 5):
        if f"{FOLDER}/{names.CLEAN_SHUTDOWN}" not in left.tree():
            continue
        found = (await start(left, plug)).log("plain")
        assert found is not None
        assert found.log_end_offset == 2
        if what == "epoch":
            assert (found.epochs.epochs, found.epochs.starts) == ([0, 3], [0, 1])
        else:
            assert list(found.producers.producers) == [7]


@pytest.mark.parametrize("interval", [1, 5])
async def test_less_than_flush_messages_are_lost(plug: PluggedIn, interval: int) -> None:
    chance = Random(interval)
    disk = Disk()
    broker = await start(disk, plug)
    log = broker.create("plain")
    log.config = replace(log.config, flush_messages=interval)
    for _ in range(40):
        rows = [(0, b"k", chance.randbytes(100), ()) for _ in range(chance.randint(1, 3))]
        info = log.append(encode_batch(rows), leader_epoch=0, now_ms=0, from_client=True)
        end = info.last_offset + 1
        if not info.flush_due:
            disk.note(end)
        else:
            flushed = log.flushed(end)
            flushed.add_done_callback(lambda _, end=end: disk.note(end))
        for _ in range(chance.randrange(3)):
            broker.jobs.step()
            await asyncio.sleep(0)
    acknowledged = [0]
    lost = []
    for _, left in crashes(disk.ops, chance, acknowledged.append, each=1, most=150):
        found = (await start(left, plug)).logs.get("plain", 0)
        end = 0 if found is None else found.open().log_end_offset
        lost.append(max(acknowledged) - end)
    assert max(lost) <= interval - 1
    assert interval == 1 or max(lost) > 0


def lose_the_end(broker: Broker, log: Log, segment: int, position: int) -> None:
    """Have the disk as after a power failure: one segment has lost its end, at a batch."""
    file = broker.logs.files.file(log.segments[segment].path(names.LOG))
    file.truncate(position)


async def three_segments(disk: Disk, plug: PluggedIn, topic: str) -> tuple[Broker, Log, int]:
    """Segments of two batches each, and the first batch's size."""
    broker = await start(disk, plug)
    log = broker.create(topic)
    append(log)
    size = log.active.size
    append(log)
    for _ in range(2):
        log.roll()
        append(log)
        append(log)
    return broker, log, size


async def test_segments_after_a_gap_are_removed(plug: PluggedIn) -> None:
    disk = Disk()
    broker, log, size = await three_segments(disk, plug, "plain")
    lose_the_end(broker, log, 0, size)
    disk.sync()
    broker = await start(disk, plug)
    found = broker.log("plain")
    assert found is not None
    assert (starts(found), found.log_end_offset) == ([0], 1)
    assert [header.base_offset for header, _ in batches_of(found)] == [0]
    for left in finally_left(disk):
        assert [path for path in left.tree() if path.endswith(names.LOG)] == [found.active.path(names.LOG)]
    # Nor do they come back once there are new records.
    append(found, 20)
    await broker.flush(found)
    await checkpoint(broker)
    for left in finally_left(disk):
        again = (await start(left, plug)).log("plain")
        assert again is not None
        assert [header.last_offset for header, _ in batches_of(again)] == [0, 20]


@pytest.mark.parametrize("why", ["compact", "cleaned before", "unknown topic", "flushed", "gap inside"])
async def test_gaps_that_compaction_left_stay(plug: PluggedIn, why: str) -> None:
    disk = Disk()
    topic = "compact" if why == "compact" else "plain"
    broker, log, size = await three_segments(disk, plug, topic)
    if why == "gap inside":
        # The last batch of the first segment is one that a leader sent after a gap.
        batch = bytearray(encode_batch([(0, b"k", b"", ())]))
        log.truncate_to(1)
        log.truncate_to(1)
        for offset in (5, 9):
            assign_offset(batch, 0, offset, 0)
            log.append_as_follower(batch)
            log.roll()
        lose_the_end(broker, log, 1, 0)
    else:
        lose_the_end(broker, log, 0, size)
    if why == "cleaned before":
        broker.logs.files.write_all(f"{FOLDER}/{names.CLEANER_OFFSETS}", b"0\n1\nplain 0 2\n")
    if why == "flushed":
        broker.logs.files.write_all(f"{FOLDER}/{names.RECOVERY_POINTS}", b"0\n1\nplain 0 6\n")
    broker = Broker(disk, plug, FakeClock())
    configs = (lambda name: None) if why == "unknown topic" else None
    await broker.open(configs)
    found = broker.logs.get(topic, 0)
    assert found is not None
    assert found.open().log_end_offset == (10 if why == "gap inside" else 6)


async def test_a_segment_that_begins_before_the_end_of_another_one_is_removed(plug: PluggedIn) -> None:
    disk = Disk()
    broker, log, size = await three_segments(disk, plug, "compact")
    batch = bytearray(encode_batch([(0, b"k", b"", ())] * 2))
    assign_offset(batch, 0, 1, 0)
    broker.logs.files.file(log.segments[0].path(names.LOG)).write(batch, size)
    found = (await start(disk, plug)).log("compact")
    assert found is not None
    assert (starts(found), found.log_end_offset) == ([0], 3)


async def test_a_followers_segments_begin_where_the_last_one_ends(plug: PluggedIn) -> None:
    broker = await start(Disk(), plug)
    log = broker.create("plain")
    batch = bytearray(encode_batch([(0, b"k", bytes(1000), ())]))
    for offset in (0, 7, 20, 2**32):
        assign_offset(batch, 0, offset, 0)
        log.append_as_follower(batch)
    # The last one is too far away for relative offsets.
    assert starts(log) == [0, 1, 8, 2**32]
    assert [header.base_offset for header, _ in batches_of(log)] == [0, 7, 20, 2**32]
    found = log.reader.read(3, 10_000, max_offset=2**32 + 1, min_one=True)
    assert found is not None
    assert int.from_bytes(found.read()[:8], "big") == 7


async def test_recovery_removes_epochs_that_the_batches_contradict(plug: PluggedIn) -> None:
    disk = Disk()
    broker = await start(disk, plug)
    log = broker.create("plain")
    append(log, 10, epoch=4)
    append(log, 10, epoch=5)
    await broker.flush(log)
    assert b"5 10" in disk.tree()[f"{log.path}/{names.LEADER_EPOCHS}"]
    log.truncate_to(10)
    await record(broker, log)
    # The leader has more of epoch 4.
    append(log, 10, epoch=4)
    append(log, 10, epoch=6)
    found = (await start(disk, plug)).log("plain")
    assert found is not None
    assert (found.epochs.epochs, found.epochs.starts) == ([4, 6], [0, 20])


async def test_the_cleaners_checkpoint_is_not_before_its_segments(plug: PluggedIn) -> None:
    disk = Disk()
    broker, log, _ = await three_segments(disk, plug, "compact")
    await broker.flush(log)
    first = len(disk.ops)
    await broker.clean(log)
    cleaned = len(batches_of(log))
    for left in leftovers(disk, first, 5):
        if f"{FOLDER}/{names.CLEANER_OFFSETS}" in left.tree():
            found = (await start(left, plug)).log("compact")
            assert found is not None
            assert len(batches_of(found)) == cleaned


@pytest.mark.parametrize("batches", [0, 1])
async def test_damage_behind_a_gap_is_cut_off(plug: PluggedIn, batches: int) -> None:
    disk = Disk()
    broker, log, size = await three_segments(disk, plug, "compact")
    broker.logs.files.write_all(f"{FOLDER}/{names.RECOVERY_POINTS}", b"0\n1\ncompact 0 5\n")
    # Compaction has removed the end of the segment before the one with the recovery point, and damage is behind that.
    lose_the_end(broker, log, 1, size)
    broker.logs.files.unlink(log.producers.path(4))
    broker.logs.files.file(log.segments[2].path(names.LOG)).write(bytes(size), batches * size)
    found = (await start(disk, plug)).log("compact")
    assert found is not None
    assert (found.failure, found.log_end_offset) == (None, 4 + batches)


async def test_a_truncation_below_the_log_start_lowers_its_checkpoint(plug: PluggedIn) -> None:
    disk = Disk()
    broker = await start(disk, plug)
    log = broker.create("plain")
    for _ in range(10):
        append(log)
    log.advance_log_start_offset(9)
    await broker.jobs.until(asyncio.ensure_future(broker.logs.maintenance.checkpoint_log_starts()))
    log.truncate_to(4)
    await record(broker, log)
    append(log)
    await broker.flush(log)
    for left in finally_left(disk):
        found = (await start(left, plug)).log("plain")
        assert found is not None
        assert (found.log_start_offset, found.log_end_offset) in ((0, 5), (4, 5))
