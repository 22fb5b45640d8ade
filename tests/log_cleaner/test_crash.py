"""A cleaning that is interrupted at any step leaves the log's contents as they were."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from ottla_broker.log.cleaner import CleanerSettings, service
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.log.verify import Tally, verify_partition
from ottla_protocol.records.control import encode_transaction_marker
from ottla_protocol.records.record import encode_batch

from .conftest import START_MS, Broker, append, records, roll
from .faults import FaultyFiles, Killed
from .test_model import last_values
from .test_transactions import read_committed

KEYS = [b"a", b"b", b"c", b"d"]
EXPECTED = {b"b": b"2-1", b"c": b"2-2", b"d": b"end"}


def fill(log: Log) -> None:
    """Three segments to merge, one alone, and one active; ``a`` is deleted in the end, and a transaction aborted."""
    for turn in range(3):
        append(log, *((key, b"%d-%d" % (turn, i)) for i, key in enumerate(KEYS)), codec=turn % 2)
        if turn == 1:
            abort_transaction(log)
        roll(log)
    append(log, (b"a", None), (b"d", b"x" * 700))
    roll(log)
    append(log, (b"d", b"end"))


def abort_transaction(log: Log) -> None:
    """Append a record of a transaction, and the marker that aborts it."""
    producer = {"producer_id": 7, "producer_epoch": 0, "leader_epoch": 0}
    offset = log.log_end_offset
    data = encode_batch(
        [(START_MS, b"c", b"aborted", ())],
        base_offset=offset,
        base_sequence=0,
        transactional=True,
        **producer,
    )
    log.append_as_follower(data)
    log.append_as_follower(
        encode_transaction_marker(
            commit=False, coordinator_epoch=0, timestamp_ms=START_MS, base_offset=offset + 1, **producer
        )
    )
    log.producers.unstable.replicated_to(offset + 2)


def table(log: Log) -> dict[bytes | None, bytes]:
    """What a consumer of committed records makes of the log, all of which is replicated."""
    log.producers.unstable.replicated_to(log.log_end_offset)
    return last_values(read_committed(log))


async def killed_at(folder: Path, settings: CleanerSettings, step: int) -> bool:
    """Fill a log, clean it and kill the process at a step; False when cleaning has fewer steps."""
    files = FaultyFiles()
    broker = await Broker(folder, settings, files).open()
    log = broker.create(segment_bytes=800, file_delete_delay_ms=3_600_000)
    fill(log)
    log.flush()
    files.arm(step, for_good=True)
    try:
        await broker.clean_now(log)
    except Killed:
        pass
    finally:
        await broker.cleaner.close()
        files.close()
        broker.logs._unlock()
        broker.background.close()
    return files.dead


async def test_a_kill_at_any_step_of_a_cleaning(tmp_path: Path, settings: CleanerSettings) -> None:
    step = 0
    died = True
    while died:
        step += 1
        folder = tmp_path / str(step)
        died = await killed_at(folder, settings, step)
        broker = await Broker(folder, settings).open()
        log = broker.logs.get("t", 0)
        assert log is not None
        log.open()
        found = records(log)
        assert table(log) == EXPECTED, f"killed at step {step}"
        assert [each.offset for each in found] == sorted({each.offset for each in found})
        assert log.log_end_offset == 17
        left = {path.suffix for path in (folder / "t-0").iterdir()}
        assert not left & {".cleaned", ".swap", ".deleted"}
        log.active.write_indexes()
        assert list(verify_partition(Files(8, read_only=True), log.path, Tally())) == []

        append(log, (b"c", b"new"))
        roll(log)
        await broker.clean(log)
        assert table(log) == EXPECTED | {b"c": b"new"}
        await broker.close()
        shutil.rmtree(folder)
    assert step > 30


async def test_a_disk_that_refuses_a_step(tmp_path: Path, settings: CleanerSettings) -> None:
    step = 0
    refused = True
    while refused:
        step += 1
        folder = tmp_path / str(step)
        files = FaultyFiles()
        broker = await Broker(folder, settings, files).open()
        log: Log | None = broker.create(segment_bytes=800)
        assert log is not None
        log.open()
        fill(log)
        await broker.logs.flusher.idle()
        files.arm(step, for_good=False)
        await broker.clean_now(log)
        await broker.logs.flusher.idle()
        refused = files.steps >= step
        assert broker.cleaner.uncleanable == frozenset()
        files.arm(0, for_good=False)
        if log.failure is not None:
            # The swap itself was refused: the log is out of use until a restart, which finishes or undoes it.
            assert "swap" in log.failure
            await broker.close()
            broker = await Broker(folder, settings).open()
            log = broker.logs.get("t", 0)
            assert log is not None
            log.open()
        assert table(log) == EXPECTED, f"refused at step {step}"
        append(log, (b"c", b"new"))
        roll(log)
        await broker.clean(log)
        assert table(log) == EXPECTED | {b"c": b"new"}
        await broker.close()
        shutil.rmtree(folder)


@pytest.mark.parametrize("what", ["deleted", "truncated", "recreated"])
async def test_a_log_that_changes_while_it_is_cleaned(
    broker: Broker, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = broker.create()
    fill(log)
    chosen = broker.cleaner._measure(log)
    swap = broker.cleaner._check_current
    calls = 0

    def change_then_check(*args: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 6:  # Four dirty segments were read; the second group is about to be cleaned or swapped.
            if what == "truncated":
                log.truncate_fully_and_start_at(0)
            else:
                broker.logs.delete("t", 0)
            if what == "recreated":
                append(broker.logs.create("t", 0, bytes(15) + b"2", log.config).open(), (b"z", b"new"))
        swap(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(broker.cleaner, "_check_current", change_then_check)
    assert await broker.cleaner._clean(chosen) is None

    assert calls >= 6
    assert broker.cleaner.uncleanable == frozenset()
    now = broker.logs.get("t", 0)
    if what == "recreated":
        assert now is not None
        assert table(now.open()) == {b"z": b"new"}
        assert broker.cleaner._checkpoints.get(now) is None
    elif what == "truncated":
        assert records(log) == []
    assert not list(Path(log.path).parent.glob("t-0/*.cleaned"))


async def test_a_damaged_batch_makes_only_its_log_uncleanable(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Mock()
    monkeypatch.setattr(service, "_log", heard)
    log, other = broker.create(), broker.create("other")
    fill(log)
    fill(other)
    segment = log.segments[1]
    segment.file.write(b"\xff", segment.size - 3)

    assert [await broker.cleaner._clean_dirtiest() for _ in range(3)] == [True, True, False]

    assert broker.cleaner.uncleanable == {("t", 0)}
    assert broker.cleaner._checkpoints.get(other) == 16
    heard.error.assert_called_once()
    heard.exception.assert_not_called()
    assert "checksum" in heard.error.call_args.kwargs["why"]
    append(log, (b"a", b"goes on"), now_ms=START_MS)
