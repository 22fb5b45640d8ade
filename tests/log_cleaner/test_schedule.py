"""Which log is cleaned, when, and how far."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.log.cleaner import CleanerSettings
from ottla_broker.log.cleaner.grouping import group_segments
from ottla_broker.log.cleaner.pace import Throttle
from ottla_broker.log.cleaner.schedule import cleanable, dirtiest, first_dirty_offset
from ottla_broker.log.config import LogConfig
from ottla_broker.log.log import Log

from .conftest import START_MS, Broker, append, pairs, roll

DAY_MS = 24 * 60 * 60 * 1000


def filled(broker: Broker, topic: str, segments: int, **config: object) -> Log:
    """A log of sealed segments of one batch each, and an empty active one."""
    log = broker.create(topic, **config)
    for number in range(segments):
        append(log, (b"key", b"%03d" % number), now_ms=START_MS + number * 1000)
        roll(log)
    return log


async def test_the_dirtiest_log_is_cleaned_first(broker: Broker) -> None:
    logs = [filled(broker, topic, 4) for topic in ("half", "all", "quarter")]
    found = [cleanable(log, first, 4, START_MS) for log, first in zip(logs, (2, 0, 3), strict=True)]

    assert [each.ratio for each in found] == [0.5, 1.0, 0.25]
    best = dirtiest(found)
    assert best is not None
    assert best.log.topic == "all"
    assert [each.is_due for each in found] == [False, True, False], "above the ratio, not at it"


async def test_nothing_is_due_below_min_cleanable_dirty_ratio(broker: Broker) -> None:
    log = filled(broker, "t", 4, min_cleanable_dirty_ratio=0.3)
    assert not cleanable(log, 3, 4, START_MS).is_due
    assert cleanable(log, 2, 4, START_MS).is_due


async def test_records_younger_than_min_compaction_lag_are_not_cleaned(broker: Broker) -> None:
    log = filled(broker, "t", 4, min_compaction_lag_ms=10_000)
    # The segments' records are from second 0, 1, 2 and 3.
    assert cleanable(log, None, 4, START_MS + 11_500).first_uncleanable == 2
    assert cleanable(log, None, 4, START_MS + 9_000).first_uncleanable == 0
    assert cleanable(log, None, 4, START_MS + 60_000).first_uncleanable == 4


async def test_records_older_than_max_compaction_lag_make_a_log_due(broker: Broker) -> None:
    log = filled(broker, "t", 4, max_compaction_lag_ms=DAY_MS, min_cleanable_dirty_ratio=1.0)
    assert not cleanable(log, 3, 4, START_MS + DAY_MS + 3_000).is_due
    assert cleanable(log, 3, 4, START_MS + DAY_MS + 3_001).is_due


async def test_a_compacted_segment_is_written_to_no_longer_than_max_compaction_lag(broker: Broker) -> None:
    log = broker.create("t", max_compaction_lag_ms=1000)
    for after in (0, 1000, 1001):
        append(log, (b"a", b"1"), now_ms=START_MS + after)
    assert [each.base_offset for each in log.segments] == [0, 2]


async def test_a_stable_offset_inside_a_segment_stops_before_it(broker: Broker) -> None:
    log = broker.create("t")
    append(log, (b"a", b"1"))
    roll(log)
    append(log, (b"a", b"2"), (b"a", b"3"))
    roll(log)
    assert cleanable(log, None, 2, START_MS).first_uncleanable == 1
    assert cleanable(log, None, 3, START_MS).first_uncleanable == 3


async def test_a_checkpoint_that_does_not_fit_the_log_is_ignored(broker: Broker) -> None:
    log = filled(broker, "t", 4)
    assert [first_dirty_offset(log, each) for each in (None, 0, 3, 4, 5)] == [0, 0, 3, 4, 0]
    log.advance_log_start_offset(2)
    assert [first_dirty_offset(log, each) for each in (None, 1, 3)] == [2, 2, 3]


async def test_the_checkpoint_is_written_in_kafkas_format_and_read_again(
    tmp_path: Path, settings: CleanerSettings
) -> None:
    broker = await Broker(tmp_path, settings).open()
    log = filled(broker, "t", 3)
    other = filled(broker, "other", 2)
    await broker.clean(log)
    await broker.clean(other)
    assert (tmp_path / "cleaner-offset-checkpoint").read_bytes() == b"0\n2\nother 0 2\nt 0 3\n"
    await broker.close()

    broker = await Broker(tmp_path, settings).open()
    found = broker.logs.get("t", 0)
    assert found is not None
    assert broker.cleaner._measure(found).first_dirty == 3
    await broker.close()


async def test_a_recreated_topic_does_not_inherit_the_checkpoint(broker: Broker) -> None:
    await broker.clean(filled(broker, "t", 3))
    broker.logs.delete("t", 0)
    log = broker.logs.create("t", 0, bytes(15) + b"x", broker.create("u").config).open()
    for _ in range(5):
        append(log, (b"key", b"new"))
        roll(log)
    assert broker.cleaner._measure(log).first_dirty == 0


async def test_a_closed_log_is_opened_only_if_it_has_something_to_clean(
    tmp_path: Path, settings: CleanerSettings
) -> None:
    broker = await Broker(tmp_path, settings).open()
    filled(broker, "dirty", 3)
    append(broker.create("short"), (b"a", b"1"))
    await broker.close()

    broker = await Broker(tmp_path, settings).open()
    assert await broker.cleaner._clean_dirtiest()
    dirty, short = broker.logs.get("dirty", 0), broker.logs.get("short", 0)
    assert dirty is not None
    assert short is not None
    assert not short.is_open
    assert pairs(dirty) == [(2, b"key", b"002")]
    assert not await broker.cleaner._clean_dirtiest()
    await broker.close()


async def test_the_cleaner_runs_by_itself_and_stops(tmp_path: Path) -> None:
    broker = await Broker(
        tmp_path, CleanerSettings(dedupe_buffer_size=1 << 20, threads=2, backoff_ms=0)
    ).open()
    log = filled(broker, "t", 3)
    plain = filled(broker, "plain", 3, compact=False, delete=True)
    broker.cleaner.start()
    async with asyncio.timeout(60):
        while len(pairs(log)) > 1:
            await asyncio.sleep(0)
        await broker.close()
    assert len(pairs(plain)) == 3


async def test_a_cleaner_that_is_not_enabled_does_nothing(tmp_path: Path) -> None:
    broker = await Broker(tmp_path, CleanerSettings(enable=False, backoff_ms=0)).open()
    broker.cleaner.start()
    assert broker.cleaner._workers == []
    await broker.close()


async def test_stopping_in_the_middle_of_a_cleaning_leaves_the_log_as_it_was(broker: Broker) -> None:
    log = broker.create("t", segment_bytes=100_000)
    for _ in range(200):
        append(log, *((b"%d" % key, b"v") for key in range(100)))
    roll(log)
    before = log.segments
    # A limit that a minute isn't enough for.
    broker.cleaner._throttle = Throttle(1000.0, broker.clock.monotonic)
    cleaning = asyncio.ensure_future(broker.clean_now(log))
    await asyncio.sleep(0.01)
    broker.cleaner._stopping.set()

    assert await cleaning is None
    assert log.segments == before


async def test_the_rest_of_the_policy_compact_and_delete(broker: Broker) -> None:
    log = filled(broker, "t", 4, delete=True, retention_ms=DAY_MS)
    await broker.clean(log)
    assert pairs(log) == [(3, b"key", b"003")]
    append(log, (b"other", b"x"), now_ms=START_MS + DAY_MS)

    assert log.delete_old_segments(START_MS + DAY_MS + 3_001) > 0
    assert pairs(log) == [(4, b"other", b"x")]


def measured(base_offset: int, size: int, index_size: int, time_index_size: int) -> Any:
    return SimpleNamespace(
        base_offset=base_offset,
        size=size,
        offset_index=SimpleNamespace(byte_size=index_size),
        time_index=SimpleNamespace(byte_size=time_index_size),
    )


def groups(segments: list[Any], segment_bytes: int, index_bytes: int, end_offset: int) -> list[int]:
    config = LogConfig(segment_bytes=segment_bytes, segment_index_bytes=index_bytes)
    return [len(group) for group in group_segments(segments, config, end_offset)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([10], [1]),
        ([50, 50, 1], [2, 1]),
        ([101, 1, 99, 1], [1, 2, 1]),
        ([0, 0, 0], [3]),
    ],
)
def test_groups_stay_within_segment_bytes(sizes: list[int], expected: list[int]) -> None:
    segments = [measured(number * 10, size, 8, 12) for number, size in enumerate(sizes)]
    assert groups(segments, 100, 1000, len(sizes) * 10) == expected


def test_groups_stay_within_the_index_and_its_relative_offsets() -> None:
    far = 2**31
    assert groups([measured(0, 1, 8, 12), measured(1, 1, 8, 12)], 100, 15, 2) == [1, 1]
    assert groups([measured(0, 1, 8, 12), measured(1, 1, 8, 12)], 100, 23, 2) == [1, 1]
    assert groups([measured(0, 1, 0, 0), measured(5, 1, 0, 0)], 100, 100, far) == [2]
    assert groups([measured(0, 1, 0, 0), measured(5, 1, 0, 0)], 100, 100, far + 1) == [1, 1]
    assert groups([measured(0, 1, 0, 0), measured(5, 0, 0, 0)], 100, 100, far + 1) == [2]


async def test_another_backoff_applies_at_once(broker: Broker) -> None:
    broker.cleaner.start()
    await asyncio.sleep(0)
    (first,) = broker.cleaner._pauses
    broker.cleaner.set_backoff(broker.cleaner._settings.backoff_ms)
    assert not first.done()
    broker.cleaner.set_backoff(1)
    assert first.done()
    assert broker.cleaner._settings.backoff_ms == 1
