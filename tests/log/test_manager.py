"""All logs of a broker: start, stop, crash, lock, identity, deletion, maintenance."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from ottla_broker.background import Background
from ottla_broker.clock import SystemClock
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Files
from ottla_broker.log.folder import LogDirError
from ottla_broker.log.log import Log
from ottla_broker.log.maintenance import Intervals
from ottla_broker.log.manager import LogManager
from ottla_protocol.errors import ErrorCode, KafkaError

from .batches import batch
from .conftest import NOW_MS, FaultyFiles

TOPIC_ID = bytes(range(16))
Start = Callable[..., Awaitable[LogManager]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """``await start(…)`` returns a loaded manager; those still open at the end are abandoned as in a crash."""
    background = Background(4)
    managers: list[LogManager] = []

    async def build(*dirs: str, files: Files | None = None, intervals: Intervals | None = None) -> LogManager:
        manager = LogManager(
            [tmp_path / name for name in dirs or ("data",)],
            LogConfig(file_delete_delay_ms=0),
            SystemClock(asyncio.get_running_loop()),
            background,
            Random(len(managers)),
            files=files,
            recovery_threads=2,
            intervals=intervals,
        )
        await manager.load()
        managers.append(manager)
        return manager

    yield build
    for manager in managers:
        abandon(manager)
    background.close()


def abandon(manager: LogManager) -> None:
    """Release the locks as a crash does."""
    manager.deferred.close()
    for folder in manager.folders:
        folder.unlock()
    manager.files.close()


def fill(manager: LogManager, topic: str, partition: int, count: int, config: LogConfig | None = None) -> Log:
    log = manager.create(topic, partition, TOPIC_ID, config or LogConfig(file_delete_delay_ms=0)).open()
    for _ in range(count):
        log.append(batch(1, timestamp=NOW_MS), leader_epoch=0, now_ms=NOW_MS, from_client=True)
    return log


async def test_a_clean_stop_leaves_kafkas_files_and_the_next_start_reads_none_of_them(
    start: Start, tmp_path: Path
) -> None:
    manager = await start()
    manager.claim("cluster-1", 3)
    fill(manager, "flights", 0, 5)
    fill(manager, "flights", 1, 0)
    log = fill(manager, "planes-x", 7, 3)
    log.advance_log_start_offset(2)
    await manager.close()
    data = tmp_path / "data"
    assert (data / ".kafka_cleanshutdown").exists()
    assert (data / "recovery-point-offset-checkpoint").read_bytes() == (
        b"0\n3\nflights 0 5\nflights 1 0\nplanes-x 7 3\n"
    )
    assert (data / "log-start-offset-checkpoint").read_bytes() == b"0\n1\nplanes-x 7 2\n"
    assert (data / "meta.properties").read_text().splitlines()[1:] == [
        "version=0",
        "broker.id=3",
        "cluster.id=cluster-1",
    ]
    assert {path.name for path in (data / "flights-0").iterdir()} == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    manager = await start()
    assert not (data / ".kafka_cleanshutdown").exists()
    assert manager.identity() == ("cluster-1", 3)
    again = manager.get("flights", 0)
    assert again is not None
    assert not any(log.is_open for log in manager.logs())
    assert again.topic_id == TOPIC_ID
    assert not again.is_open
    assert again.open().log_end_offset == 5
    other = manager.get("planes-x", 7)
    assert other is not None
    assert other.open().log_start_offset == 2
    assert manager.get("flights", 2) is None


async def test_a_stop_without_use_keeps_the_checkpoints(start: Start, tmp_path: Path) -> None:
    manager = await start()
    fill(manager, "flights", 0, 5).advance_log_start_offset(4)
    await manager.write_high_watermarks({("flights", 0): 5})
    await manager.close()
    files = sorted(path for path in (tmp_path / "data").iterdir() if path.is_file() and path.name != ".lock")
    before = [path.read_bytes() for path in files]
    manager = await start()
    assert manager.high_watermark("flights", 0) == 5
    assert manager.high_watermark("flights", 1) is None
    await manager.close()
    assert [path.read_bytes() for path in files] == before


async def test_after_a_crash_every_log_is_recovered(start: Start, tmp_path: Path) -> None:
    manager = await start()
    for partition in range(10):
        fill(manager, "flights", partition, partition)
    for partition in range(10):
        path = tmp_path / "data" / f"flights-{partition}" / "00000000000000000000.log"
        with open(path, "ab") as stream:
            stream.write(b"\0" * 100)
    abandon(manager)
    manager = await start()
    for partition in range(10):
        log = manager.get("flights", partition)
        assert log is not None
        assert log.is_open
        assert log.log_end_offset == partition


async def test_a_crash_while_starting_counts_as_a_crash(start: Start, tmp_path: Path) -> None:
    manager = await start()
    fill(manager, "flights", 0, 2)
    await manager.close()
    abandon(await start())
    manager = await start()
    assert all(log.is_open for log in manager.logs())


async def test_a_folder_in_use_is_refused_in_one_line(start: Start, tmp_path: Path) -> None:
    await start("data", "more")
    with pytest.raises(LogDirError, match="another process holds") as caught:
        await start("other", "more")
    assert "\n" not in str(caught.value)
    await start("other")


async def test_another_brokers_folder_is_refused(start: Start, tmp_path: Path) -> None:
    manager = await start()
    manager.claim("cluster-1", 3)
    with pytest.raises(LogDirError, match=r"cluster\.id cluster-1"):
        manager.claim("cluster-2", 3)
    with pytest.raises(LogDirError, match=r"broker\.id 3"):
        manager.claim("cluster-1", 4)
    manager.claim("cluster-1", 3)
    abandon(manager)
    other = await start("other")
    other.claim("cluster-2", 3)
    abandon(other)
    both = await start("data", "other")
    with pytest.raises(LogDirError, match="different brokers"):
        both.identity()


@pytest.mark.parametrize("content", [b"version=7\n", b"", b"\xff\xfe", b"version=0\nbroker.id=x\n"])
async def test_an_unreadable_meta_properties_is_one_clear_error(
    start: Start, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_bytes(content)
    with pytest.raises(LogDirError, match=r"meta\.properties"):
        (await start()).identity()
    (tmp_path / "data" / "meta.properties").unlink()
    await start()


async def test_a_data_folder_that_is_a_file_is_one_clear_error(start: Start, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(LogDirError, match="data cannot be used: it is a file; check --data-dir"):
        await start()


async def test_a_partition_in_two_folders_is_refused(start: Start, tmp_path: Path) -> None:
    for name in ("data", "more"):
        (tmp_path / name / "flights-0").mkdir(parents=True)
    with pytest.raises(LogDirError, match="flights-0"):
        await start("data", "more")


async def test_new_logs_go_to_the_folder_with_the_fewest(start: Start, tmp_path: Path) -> None:
    manager = await start("data", "more")
    for partition in range(6):
        fill(manager, "flights", partition, 0)
    assert len(list((tmp_path / "data").glob("flights-*"))) == 3
    manager.delete("flights", 0)
    log = fill(manager, "flights", 9, 0)
    assert log.path == str(tmp_path / "data" / "flights-9")
    assert fill(manager, "flights", 9, 1) is log


async def test_deleting_while_in_use(start: Start, tmp_path: Path) -> None:
    manager = await start()
    log = fill(manager, "flights", 0, 3)
    part = log.reader.read(0, 1000, max_offset=3, min_one=True)
    assert part is not None
    manager.delete("flights", 0)
    manager.delete("flights", 0)
    assert not manager.has("flights", 0)
    with pytest.raises(KafkaError) as caught:
        fill_one(log)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    new = fill(manager, "flights", 0, 1)
    while list((tmp_path / "data").glob("*-delete")):
        await asyncio.sleep(0.01)
    assert len(part.read()) == part.size
    assert new.log_end_offset == 1


def fill_one(log: Log) -> None:
    log.append(batch(1), leader_epoch=0, now_ms=NOW_MS, from_client=True)


async def test_folders_waiting_for_removal_are_removed_at_the_start(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    deleted_path = data / f"flights-0.{'a' * 32}-delete"
    deleted_path.mkdir(parents=True)
    (deleted_path / "00000000000000000000.log").write_bytes(b"x")
    (data / "my-delete").mkdir()
    manager = await start()
    assert not list(manager.logs())
    while deleted_path.exists():
        await asyncio.sleep(0.01)
    assert (data / "my-delete").exists()


async def test_a_new_partition_never_inherits_an_old_ones_checkpoints(start: Start, tmp_path: Path) -> None:
    manager = await start()
    log = fill(manager, "flights", 0, 50)
    log.advance_log_start_offset(40)
    log.flush()
    await manager.maintenance.checkpoint_recovery_points()
    await manager.maintenance.checkpoint_log_starts()
    assert b"flights 0 40" in (tmp_path / "data" / "log-start-offset-checkpoint").read_bytes()
    manager.delete("flights", 0)
    fill(manager, "flights", 0, 3)
    abandon(manager)
    again = (await start()).get("flights", 0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (0, 3)


async def test_waiters_share_an_fsync(start: Start) -> None:
    files = FaultyFiles()
    manager = await start(files=files)
    manager.files.sync_fails = False  # type: ignore[attr-defined]
    log = fill(manager, "flights", 0, 1)
    waiters = [log.flushed(1)]
    for end in range(2, 30):
        fill_one(log)
        waiters.append(log.flushed(end))
    await asyncio.gather(*waiters)
    assert log.recovery_point == 29
    assert files.syncs == 2
    await log.flushed(29)
    assert files.syncs == 2


async def test_a_failed_fsync_reaches_every_waiter_and_the_stop_is_not_clean(
    start: Start, tmp_path: Path
) -> None:
    files = FaultyFiles()
    manager = await start(files=files)
    log = fill(manager, "flights", 0, 2)
    good = fill(manager, "flights", 1, 2)
    await good.flushed(2)
    files.sync_fails = True
    results = await asyncio.gather(log.flushed(1), log.flushed(2), return_exceptions=True)
    assert all(isinstance(result, KafkaError) and "fsync failed" in str(result) for result in results)
    files.sync_fails = False
    with pytest.raises(KafkaError):
        await log.flushed(2)
    fill_one(good)
    await manager.close()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert (
        b"flights 0 0\nflights 1 3" in (tmp_path / "data" / "recovery-point-offset-checkpoint").read_bytes()
    )


async def test_a_roll_flushes_the_old_segment(start: Start) -> None:
    manager = await start()
    log = fill(manager, "flights", 0, 3)
    log.roll()
    await manager.flusher.idle()
    assert log.recovery_point == 3


async def test_retention_opens_only_logs_that_have_data(start: Start) -> None:
    manager = await start()
    fill(manager, "flights", 0, 3)
    fill(manager, "flights", 1, 0)
    await manager.close()
    manager = await start()
    manager.update_config("flights", LogConfig(retention_ms=1, file_delete_delay_ms=0))
    await manager.maintenance.retain()
    full, empty = manager.get("flights", 0), manager.get("flights", 1)
    assert full is not None
    assert empty is not None
    assert full.log_start_offset == 3
    assert not empty.is_open


async def test_a_damaged_log_does_not_stop_the_upkeep_of_the_others(start: Start, tmp_path: Path) -> None:
    manager = await start()
    config = LogConfig(segment_bytes=200, index_interval_bytes=0, retention_ms=1, file_delete_delay_ms=0)
    damaged, healthy = (fill(manager, "flights", index, 9, config) for index in (0, 1))
    assert len(damaged.segments) > 2
    await manager.close()
    manager = await start()
    manager.update_config("flights", config)
    for index in (0, 1):
        log = manager.get("flights", index)
        assert log is not None
        log.open()
        if index == 0:
            for file in Path(log.path).glob("*.timeindex"):
                os.truncate(file, 5)
            with pytest.raises(KafkaError, match="shorter than it was"):
                log.append(batch(1), leader_epoch=0, now_ms=NOW_MS, from_client=True)
    await manager.maintenance.retain()
    healthy = manager.get("flights", 1)
    assert healthy is not None
    assert healthy.log_start_offset == 9


async def test_a_defect_in_one_task_ends_neither_it_nor_the_others(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = await start(intervals=Intervals(1, 1, 1, 1, 1, 0))
    calls = []

    async def broken() -> None:
        calls.append(1)
        raise ValueError("a defect")

    monkeypatch.setattr(manager.maintenance, "retain", broken)
    log = fill(manager, "flights", 0, 3, LogConfig(flush_ms=10))
    running = asyncio.create_task(manager.run())
    async with asyncio.timeout(60):
        while len(calls) < 2 or log.recovery_point < 3:
            await asyncio.sleep(0.01)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_flush_ms_flushes_in_the_background(start: Start) -> None:
    manager = await start(intervals=Intervals(initial_delay_ms=0))
    log = fill(manager, "flights", 0, 3, LogConfig(flush_ms=10))
    running = asyncio.create_task(manager.run())
    while log.recovery_point < 3:
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_maintenance_writes_checkpoints_and_forgets_producers(start: Start, tmp_path: Path) -> None:
    manager = await start(intervals=Intervals(1, 1, 1, 1, 1, 0))
    log = fill(manager, "flights", 0, 0)
    log.append(batch(1, producer_id=4, epoch=0, sequence=0), leader_epoch=0, now_ms=NOW_MS, from_client=True)
    log.flush()
    running = asyncio.create_task(manager.run())
    checkpoint = tmp_path / "data" / "recovery-point-offset-checkpoint"
    while log.producers.producers or not checkpoint.exists() or b"flights 0 1" not in checkpoint.read_bytes():
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_descriptors_are_bounded_and_slices_keep_theirs(start: Start, tmp_path: Path) -> None:
    files = Files(max_open=16)
    manager = await start(files=files)
    logs = [fill(manager, "flights", partition, 1) for partition in range(60)]
    slices = [log.reader.read(0, 1000, max_offset=1, min_one=True) for log in logs]
    assert sum(each._descriptor is not None for each in files._open) <= 16
    contents = [part.read() for part in slices if part is not None]
    assert len(contents) == 60
    slices.clear()
    mine = str(tmp_path / "data" / "flights-")
    paths = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    open_now = sum(path.startswith(mine) for path in paths)
    assert open_now <= 16


async def test_many_logs_are_closed_with_one_sync_of_the_machine(start: Start) -> None:
    manager = await start()
    for partition in range(80):
        fill(manager, "flights", partition, 2)
    await manager.close()
    manager = await start()
    for log in manager.logs():
        assert log.checkpoint_recovery_point == 2
        assert log.open().log_end_offset == 2


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("../../x", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a\n1 0 9", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("ä", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 250, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a", -1, ErrorCode.INVALID_PARTITIONS),
    ],
)
async def test_no_name_makes_a_folder_elsewhere(
    start: Start, tmp_path: Path, topic: str, partition: int, code: ErrorCode
) -> None:
    manager = await start()
    with pytest.raises(KafkaError) as refused:
        manager.create(topic, partition, TOPIC_ID, LogConfig())
    assert refused.value.code is code
    assert not [path for path in tmp_path.rglob("*") if path.is_dir() and path.name != "data"]
    assert manager.create("a" * 249, 0, TOPIC_ID, LogConfig()).open().is_open


async def test_a_folder_whose_name_no_topic_may_have_breaks_no_checkpoint(
    start: Start, tmp_path: Path
) -> None:
    for name in ("a b-0", "ä-0"):
        (tmp_path / "data" / name).mkdir(parents=True)
    manager = await start()
    fill(manager, "flights", 0, 3)
    await manager.write_high_watermarks({("flights", 0): 3})
    await manager.close()
    again = await start()
    assert [log.name for log in again.logs()] == ["flights-0"]
    assert again.high_watermark("flights", 0) == 3
