"""Logs that move to another data folder: while they are written to, after a kill at any step, with everything else."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.log.batches import batch
from tests.support.log_dirs import KEEP, World

from ottla_broker.background import Background
from ottla_broker.clock import SystemClock
from ottla_broker.log import names
from ottla_broker.log.cleaner.service import CleanerSettings, LogCleaner
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Descriptor, Files, LogFile
from ottla_broker.log.folder import LogDirError
from ottla_broker.log.log import Log
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.replica.partition import Partition, Role
from ottla_protocol.errors import ErrorCode, KafkaError

NOW_MS = time.time_ns() // 1_000_000


class Killed(BaseException):
    """The process is dead: nothing reaches the disk any longer."""


class MortalFile(LogFile):
    __slots__ = ()

    def create(self) -> None:
        mortal(self._files).step()
        super().create()

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        mortal(self._files).step()
        super().write(data, position)

    def truncate(self, size: int) -> None:
        mortal(self._files).step()
        super().truncate(size)


class MortalFiles(Files):
    """The real disk until ``steps_left`` changes have been made."""

    def __init__(self) -> None:
        super().__init__(max_open=64)
        self.steps_left = 1 << 30

    def step(self) -> None:
        if self.steps_left <= 0:
            raise Killed
        self.steps_left -= 1

    def file(self, path: str) -> LogFile:
        return MortalFile(self, path)

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self.step()
        super().unlink(path)

    def make_folder(self, path: str, *, sync: bool = False) -> None:
        self.step()
        super().make_folder(path, sync=sync)

    def remove_folder(self, path: str) -> None:
        self.step()
        super().remove_folder(path)

    def replace(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.step()
        super().replace(path, data, sync=sync)

    def sync_folder(self, directory: str) -> None:
        self.step()
        super().sync_folder(directory)


def mortal(files: Files) -> MortalFiles:
    assert isinstance(files, MortalFiles)
    return files


Open = Callable[..., Awaitable[World]]


@pytest.fixture
async def open_world(tmp_path: Path) -> AsyncIterator[Open]:
    background = Background(4)
    worlds: list[World] = []

    async def build(config: LogConfig = KEEP, files: Files | None = None, root: str = "") -> World:
        world = World(tmp_path / root, background, config, files or Files(64))
        worlds.append(world)
        return await world.load()

    yield build
    for world in worlds:
        world.kill()
    await asyncio.sleep(0.01)
    background.close()


def append(partition: Partition, count: int = 1, **options: Any) -> None:
    for _ in range(count):
        partition.append(memoryview(batch(3, timestamp=NOW_MS, **options)), NOW_MS)


def content(log: Log) -> bytes:
    return b"".join(bytes(run) for run in log.reader.scan_batches(log.log_start_offset))


async def test_a_log_moves_while_it_is_written_to(open_world: Open) -> None:
    world = await open_world(LogConfig(segment_bytes=100_000, file_delete_delay_ms=60_000))
    partition = world.lead()
    append(partition, 4000, producer_id=-1)
    before = partition.log
    held = before.reader.read(0, 1000, max_offset=12_000, min_one=True)
    assert held is not None
    seen = held.read()
    await world.alter(partition, "b")
    assert (world.places(), world.places("-future")) == (["a"], ["b"])
    appended = 0
    while world.replicas.moves._moves:
        append(partition)
        appended += 1
        await asyncio.sleep(0)
    await world.moved()
    log = partition.log
    assert log is world.logs.get("t", 0)
    assert log is not before
    assert (world.places(), world.places("-future"), world.places("-delete")) == (["b"], [], ["a"])
    assert partition.high_watermark == log.log_end_offset == 3 * (4000 + appended)
    old, new = content(before), content(log)
    assert new == old
    append(partition, 2)
    assert log.log_end_offset == 3 * (4002 + appended)
    assert held.read() == seen
    assert log.epochs.epochs == before.epochs.epochs
    assert len(log.segments) > 1
    assert world.checkpoint("b", names.RECOVERY_POINTS).keys() == {("t", 0)}
    assert world.checkpoint("a", names.RECOVERY_POINTS) == {}
    assert not (world.root / "b" / "t-0" / names.REPLACEMENT).exists()
    await world.logs.close()
    again = await open_world()
    assert again.lead().log.log_end_offset == 3 * (4002 + appended)
    assert again.places() == ["b"]


async def test_the_copy_knows_producers_epochs_and_the_start(open_world: Open) -> None:
    world = await open_world()
    partition = world.lead()
    for sequence in range(0, 30, 3):
        append(partition, producer_id=5, epoch=0, sequence=sequence)
    partition.lead(LeaderState(0, 1, 4, (1,), 0, (1,)))
    partition.delete_records(7)
    before = partition.log
    await world.alter(partition, "c")
    await world.moved()
    log = partition.log
    assert log.path.endswith("/c/t-0")
    assert (log.log_start_offset, log.log_end_offset) == (7, 30)
    assert (log.epochs.epochs, log.epochs.starts) == (before.epochs.epochs, before.epochs.starts)
    assert log.producers.producers[5].last_sequence == before.producers.producers[5].last_sequence
    append(partition, producer_id=5, epoch=0, sequence=27)
    assert log.log_end_offset == 30, "a batch that was sent again is stored once"
    assert world.checkpoint("c", names.LOG_STARTS) == {("t", 0): 7}
    await world.alter(partition, "a")
    await world.moved()
    assert (partition.log.log_start_offset, world.places()) == (7, ["a"])


async def test_removed_files_and_folders_go_after_a_while(open_world: Open) -> None:
    world = await open_world(LogConfig(segment_bytes=300, file_delete_delay_ms=100))
    partition = world.lead()
    append(partition, 10)
    partition.delete_records(20)
    await world.alter(partition, "c")
    await world.moved()
    await asyncio.sleep(0.3)
    assert (world.places(), world.places("-delete")) == (["c"], [])
    assert not list((world.root / "c" / "t-0").glob("*.deleted"))


async def test_a_request_replaces_or_ends_a_move_under_way(open_world: Open) -> None:
    world = await open_world()
    partition = world.lead()
    append(partition, 10)
    world.replicas.moves.quota.limit = 0
    world.replicas.moves.quota.record(1)
    await world.alter(partition, "b")
    first = world.logs.future.get("t", 0)
    await world.alter(partition, "b")
    assert world.logs.future.get("t", 0) is first
    await world.alter(partition, "c")
    assert (world.places("-future"), world.places("-delete")) == (["c"], ["b"])
    await world.alter(partition, "a")
    assert world.places("-future") == []
    assert world.logs.future.get("t", 0) is None
    await world.alter(partition, "c")
    world.replicas.moves.quota.limit = 1 << 40
    await world.moved()
    assert world.places() == ["c"]
    assert [folder.log_count for folder in world.logs.folders] == [0, 0, 1]


async def test_the_quota_slows_moves_down(open_world: Open) -> None:
    world = await open_world()
    partition = world.lead()
    append(partition, 3000)
    size = partition.log.size
    world.replicas.moves.quota.limit = size
    world.replicas.moves.quota.record(2 * size)
    began = time.monotonic()
    await world.alter(partition, "b")
    await world.moved()
    assert time.monotonic() - began > 1


@pytest.mark.parametrize("flush_messages", [1 << 62, 1])
async def test_every_fsync_that_is_waited_for_is_made_for_the_copy(
    open_world: Open, flush_messages: int
) -> None:
    world = await open_world(LogConfig(flush_messages=flush_messages, file_delete_delay_ms=60_000))
    partition = world.lead()
    append(partition, 20)
    for folder in "bcab":
        await world.alter(partition, folder)
        while world.replicas.moves._moves:
            append(partition)
            await asyncio.sleep(0.001)
        end = partition.log.log_end_offset
        async with asyncio.timeout(60):
            while partition.high_watermark < end:
                await asyncio.sleep(0.001)
        if flush_messages == 1:
            assert partition.log.recovery_point == end
        await world.moved()
    assert world.places() == ["b"]
    assert partition.log.failure is None


async def test_truncation_of_a_follower_reaches_the_copy(open_world: Open) -> None:
    world = await open_world()
    partition = world.lead()
    append(partition, 3000)
    state = LeaderState(0, 2, 1, (1, 2), 0, (1, 2))
    await world.alter(partition, "b")
    future = world.logs.future.get("t", 0)
    assert future is not None
    async with asyncio.timeout(60):
        while not future.is_open or not future.log_end_offset:
            await asyncio.sleep(0)
    partition.follow(state)
    partition.truncate(30)
    other = batch(3, timestamp=NOW_MS + 1, base_offset=30, leader_epoch=1)
    partition.append_from_leader(memoryview(other), 0, 0)
    old = partition.log
    await world.moved()
    assert partition.role is Role.FOLLOWER
    assert partition.log.log_end_offset == old.log_end_offset == 33
    assert content(partition.log) == content(old)
    assert partition.log.epochs.epochs == [0, 1]


async def test_retention_and_deletion_of_the_topic_during_a_move(open_world: Open) -> None:
    world = await open_world(LogConfig(segment_bytes=2000, retention_bytes=6000, file_delete_delay_ms=60_000))
    partition = world.lead()
    append(partition, 200)
    world.replicas.moves.quota.limit = 0
    world.replicas.moves.quota.record(1)
    await world.alter(partition, "b")
    await world.logs.maintenance.retain()
    assert partition.log.log_start_offset > 0
    world.replicas.moves.quota.limit = 1 << 40
    await world.moved()
    assert world.places() == ["b"]
    assert partition.log.log_start_offset > 0
    await world.alter(partition, "c")
    world.replicas.stop("t", 0, delete=True)
    assert (world.places(), world.places("-future")) == ([], [])
    assert world.places("-delete") == ["a", "b", "c"]
    await world.moved()


async def test_a_log_that_moves_is_not_compacted_and_keeps_its_place(open_world: Open) -> None:
    world = await open_world(
        LogConfig(compact=True, delete=False, segment_bytes=2000, file_delete_delay_ms=60_000)
    )
    clock = SystemClock(asyncio.get_running_loop())
    cleaner = LogCleaner(world.logs, clock, CleanerSettings(), world.replicas.last_stable_offset)
    world.logs.future.on_replaced.append(cleaner.log_moved)
    partition = world.lead()
    append(partition, 200)
    cleaner._checkpoints.advance(partition.log, 40)
    assert [each.log for each in cleaner._candidates()] == [partition.log]
    world.replicas.moves.quota.limit = 0
    world.replicas.moves.quota.record(1)
    await world.alter(partition, "b")
    assert cleaner._candidates() == []
    world.replicas.moves.quota.limit = 1 << 40
    await world.moved()
    assert [each.first_dirty for each in cleaner._candidates()] == [40]
    await cleaner.close()
    assert world.checkpoint("b", "cleaner-offset-checkpoint") == {("t", 0): 40}
    assert world.checkpoint("a", "cleaner-offset-checkpoint") == {}


async def test_a_move_that_a_clean_stop_interrupted_goes_on(open_world: Open) -> None:
    world = await open_world()
    partition = world.lead()
    append(partition, 2000)
    world.replicas.moves.quota.limit = 1
    await world.alter(partition, "b")
    future = world.logs.future.get("t", 0)
    assert future is not None
    async with asyncio.timeout(60):
        while not future.log_end_offset:
            await asyncio.sleep(0)
    copied = future.log_end_offset
    assert 0 < copied < 6000
    await world.replicas.moves.close()
    await world.logs.close()
    again = await open_world()
    assert (again.places(), again.places("-future")) == (["a"], ["b"])
    partition = again.lead()
    await again.moved()
    assert (partition.log.log_end_offset, again.places()) == (6000, ["b"])


async def test_a_kill_at_any_step_loses_nothing(open_world: Open, tmp_path: Path) -> None:
    steps = 0
    while True:
        root = f"kill-{steps}"
        files = MortalFiles()
        world = await open_world(KEEP, files, root)
        partition = world.lead()
        append(partition, 3)
        partition.log.flush()
        append(partition, 2)
        files.steps_left = steps
        is_killed = True
        try:
            await world.alter(partition, "b")
            await world.moved()
            is_killed = files.steps_left <= 0
            append(partition)
        except Killed:
            pass
        end = partition.log.log_end_offset
        assert end >= 15
        world.kill()
        await asyncio.sleep(0)
        assert len(world.places()) <= 1, f"two logs after {steps} steps"
        again = await open_world(KEEP, None, root)
        assert len(again.places()) == 1
        assert len(again.places("-future")) <= 1
        partition = again.lead()
        await again.moved()
        assert partition.log.log_end_offset == end, f"records lost after {steps} steps"
        append(partition)
        if not is_killed:
            break
        await again.alter(partition, "b")
        await again.moved()
        assert again.places() == ["b"]
        assert again.places("-future") == []
        again.kill()
        steps += 1
    assert steps > 15


async def test_a_disk_that_is_full_ends_the_move(open_world: Open) -> None:
    class Full(Files):
        def file(self, path: str) -> LogFile:
            return FullFile(self, path)

    class FullFile(LogFile):
        __slots__ = ()

        def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
            if "-future" in self.path:
                raise OSError(28, "No space left on device")
            super().write(data, position)

    world = await open_world(KEEP, Full(64))
    partition = world.lead()
    append(partition, 3)
    await world.alter(partition, "b")
    await world.moved()
    assert (world.places(), world.places("-future")) == (["a"], [])
    append(partition)
    assert partition.log.log_end_offset == 12


class SickFiles(Files):
    """A disk whose folder ``b`` loses an fsync once the copy is nearly there: it fails, and later ones succeed."""

    def __init__(self) -> None:
        super().__init__(64)
        self.is_nearly_there, self.has_begun = threading.Event(), threading.Event()
        self.may_copy, self.may_fail = threading.Event(), threading.Event()
        self.has_failed = False

    def replace(self, path: str, data: bytes, *, sync: bool = True) -> None:
        super().replace(path, data, sync=sync)
        if path.endswith(names.REPLACEMENT):
            self.is_nearly_there.set()
            assert self.may_copy.wait(60)

    def sync_descriptor(self, descriptor: Descriptor) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor.fd}")
        if "/b/" in path and self.is_nearly_there.is_set() and not self.has_failed:
            self.has_failed = True
            self.has_begun.set()
            assert self.may_fail.wait(60)
            raise OSError(5, "Input/output error")
        super().sync_descriptor(descriptor)


async def test_a_copy_whose_fsync_fails_never_takes_the_place_of_the_log(open_world: Open) -> None:
    disk = SickFiles()
    world = await open_world(LogConfig(segment_bytes=2000, file_delete_delay_ms=60_000), disk)
    partition = world.lead()
    append(partition, 3)
    before = partition.log
    await world.alter(partition, "b")
    await asyncio.to_thread(disk.is_nearly_there.wait, 60)
    # Enough for a new segment of the copy, which brings the one before it to the device.
    append(partition, 30)
    disk.may_copy.set()
    await asyncio.to_thread(disk.has_begun.wait, 60)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert partition.log is before
    disk.may_fail.set()
    await world.moved()
    assert partition.log is before
    assert (world.places(), world.places("-future")) == (["a"], [])
    append(partition)
    assert partition.high_watermark == 34 * 3


async def test_failed_folders_end_moves(open_world: Open) -> None:
    world = await open_world()
    partition = world.lead()
    append(partition, 3)
    world.replicas.moves.quota.limit = 0
    world.replicas.moves.quota.record(1)
    await world.alter(partition, "b")
    world.replicas._folder_failed(str(world.root / "b"))
    assert world.logs.future.get("t", 0) is None
    assert (partition.role, world.places("-future")) == (Role.LEADER, ["b"])
    with pytest.raises(KafkaError) as caught:
        await world.alter(partition, "c")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_copy_of_an_earlier_topic_of_the_name_is_removed(open_world: Open) -> None:
    world = await open_world()
    partition = world.lead()
    append(partition, 3)
    world.replicas.moves.quota.limit = 0
    world.replicas.moves.quota.record(1)
    await world.alter(partition, "b")
    world.kill()
    (world.root / "a" / "t-0" / names.PARTITION_METADATA).unlink()
    again = await open_world()
    again.replicas.become_leader("t", 0, b"another topic id", 0, KEEP)
    assert again.places("-future") == []


@pytest.mark.parametrize("marked", ["a", "b", ""])
async def test_of_two_logs_the_one_that_was_moved_to_counts(open_world: Open, marked: str) -> None:
    world = await open_world()
    append(world.lead(), 3)
    world.kill()
    (world.root / "b" / "t-0").mkdir()
    if not marked:
        with pytest.raises(LogDirError, match="also exists as"):
            await open_world()
        return
    (world.root / marked / "t-0" / names.REPLACEMENT).touch()
    again = await open_world()
    assert again.places() == [marked]
    assert again.places("-stray") == ["b" if marked == "a" else "a"]
    assert again.lead().log.log_end_offset == (9 if marked == "a" else 0)


async def test_copies_that_a_start_finds(open_world: Open) -> None:
    world = await open_world()
    append(world.lead(), 3)
    world.kill()
    one = names.future_folder("t", 0, "1" * 32)
    two = names.future_folder("t", 0, "2" * 32)
    for path in (f"a/{one}", f"b/{two}"):
        (world.root / path).mkdir()
    again = await open_world()
    assert len(again.places("-future")) <= 1
    assert len(again.places()) == 1
    assert again.lead().log.log_end_offset == 9
