"""Which segments are removed, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.log.log import Log
from ottla_protocol.errors import ErrorCode, KafkaError

from .batches import batch
from .conftest import NOW_MS, OpenLog

SIZE = len(batch(1))


def fill(log: Log, timestamps: list[int]) -> Log:
    """A segment for every timestamp."""
    for timestamp in timestamps:
        log.append(batch(1, timestamp=timestamp), leader_epoch=0, now_ms=NOW_MS, from_client=True)
        log.roll(NOW_MS)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_by_time_the_newest_record_of_a_segment_counts(open_log: OpenLog) -> None:
    log = fill(
        open_log(retention_ms=1000), [NOW_MS - 2000, NOW_MS - 1001, NOW_MS - 1000, NOW_MS - 5000, NOW_MS]
    )
    assert log.delete_old_segments(NOW_MS) == 2
    assert bases(log) == [2, 3, 4, 5]
    assert log.log_start_offset == 2
    assert log.delete_old_segments(NOW_MS) == 0


def test_without_timestamps_the_time_of_writing_counts(open_log: OpenLog) -> None:
    log = fill(open_log(retention_ms=1000), [-2, -2])
    assert log.delete_old_segments(0) == 0
    assert log.delete_old_segments(2**62) == 2


def test_an_expired_active_segment_is_rolled_and_removed(open_log: OpenLog) -> None:
    log = open_log(retention_ms=1000)
    log.append(batch(2, timestamp=NOW_MS), leader_epoch=0, now_ms=NOW_MS, from_client=True)
    assert log.delete_old_segments(NOW_MS + 1001) == 0
    assert log.delete_old_segments(NOW_MS + 1002) == 1
    assert (bases(log), log.log_start_offset, log.log_end_offset, log.size) == ([2], 2, 2, 0)
    assert log.delete_old_segments(NOW_MS + 5000) == 0
    assert log.append(batch(1), leader_epoch=0, now_ms=NOW_MS, from_client=True).first_offset == 2


def test_by_size_at_least_the_limit_is_kept(open_log: OpenLog) -> None:
    log = fill(open_log(retention_ms=-1, retention_bytes=SIZE * 3), [NOW_MS] * 6)
    assert log.delete_old_segments(NOW_MS) == 3
    assert log.size == SIZE * 3
    log = fill(open_log(retention_ms=-1, retention_bytes=SIZE * 3 + 1), [NOW_MS])
    assert log.delete_old_segments(NOW_MS) == 0


def test_no_limit_keeps_everything(open_log: OpenLog) -> None:
    log = fill(open_log(retention_ms=-1), [0, 1, 2])
    assert log.delete_old_segments(2**62) == 0


def test_retention_does_not_delete_from_a_compacted_topic(open_log: OpenLog) -> None:
    log = fill(open_log(compact=True, delete=False, retention_ms=1, retention_bytes=1), [0, 1, 2])
    assert log.delete_old_segments(NOW_MS) == 0
    log.advance_log_start_offset(2)
    assert log.delete_old_segments(NOW_MS) == 2


def test_nothing_above_the_high_watermark_is_removed(open_log: OpenLog) -> None:
    log = fill(open_log(retention_ms=1000), [0] * 5)
    log.high_watermark = lambda: 3
    assert log.delete_old_segments(NOW_MS) == 3
    log.high_watermark = lambda: 5
    assert log.delete_old_segments(NOW_MS) == 2


def test_delete_records_hides_at_once_and_frees_later(open_log: OpenLog, tmp_path: Path) -> None:
    log = fill(open_log(retention_ms=-1, file_delete_delay_ms=0), [NOW_MS] * 4)
    assert log.advance_log_start_offset(2)
    assert not log.advance_log_start_offset(1)
    assert bases(log) == [0, 1, 2, 3, 4]
    with pytest.raises(KafkaError) as caught:
        log.reader.read(1, 100, max_offset=4, min_one=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.reader.offset_for_timestamp(0) == (2, NOW_MS, 0)
    assert log.epoch_end_offset(0) == (0, 4)
    assert log.delete_old_segments(NOW_MS) == 2
    assert log.recovery_point == 0, "nothing was flushed"
    assert not list(tmp_path.rglob("*.deleted"))
    with pytest.raises(KafkaError):
        log.advance_log_start_offset(5)


def test_the_start_stays_where_it_was_after_a_restart(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(4):
        log.append(batch(1), leader_epoch=0, now_ms=NOW_MS, from_client=True)
    log.advance_log_start_offset(3)
    assert log.checkpoint_start_offset == 3
    log.close()
    assert open_log(clean=True, recovery_point=4, log_start_offset=3).log_start_offset == 3


def test_truncating_everything(open_log: OpenLog, tmp_path: Path) -> None:
    log = fill(open_log(file_delete_delay_ms=0), [NOW_MS] * 4)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point, bases(log)) == (
        100,
        100,
        0,
        [100],
    )
    assert log.epochs.latest == -1
    assert not list(tmp_path.rglob("*.snapshot"))
    log.append(batch(1), leader_epoch=0, now_ms=NOW_MS, from_client=True)
    log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert log.truncate_to(50) is False
