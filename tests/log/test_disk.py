"""A disk that is full, or fails."""

from __future__ import annotations

import pytest

from ottla_broker.log.log import Log
from ottla_protocol.errors import ErrorCode, KafkaError

from .batches import batch
from .conftest import NOW_MS, FaultyFiles, OpenLog


def append(log: Log, count: int = 1) -> int:
    data = batch(count, producer_id=5, epoch=0, sequence=log.log_end_offset)
    return log.append(data, leader_epoch=1, now_ms=NOW_MS, from_client=True).first_offset


def refused(log: Log) -> str:
    with pytest.raises(KafkaError) as caught:
        append(log)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return caught.value.message or ""


@pytest.mark.parametrize("room", [0, 1, 40])
def test_a_full_disk_refuses_the_batch_and_leaves_the_log_as_it_was(
    open_log: OpenLog, disk: FaultyFiles, room: int
) -> None:
    log = open_log()
    append(log)
    size = log.size
    disk.room = room
    assert "No space left" in refused(log)
    assert (log.log_end_offset, log.size, log.active.file.size()) == (1, size, size)
    disk.room = None
    assert append(log) == 1
    again = open_log()
    assert again.log_end_offset == 2
    assert again.producers.producers[5].last_sequence == 1


def test_a_full_disk_at_a_roll_leaves_the_log_usable(open_log: OpenLog, disk: FaultyFiles) -> None:
    log = open_log(segment_bytes=200, index_interval_bytes=0)
    while log.active.size + 70 < 200:
        append(log)
    end = log.log_end_offset
    disk.room = 0
    refused(log)
    disk.room = None
    assert append(log) == end
    assert open_log(segment_bytes=200).log_end_offset == end + 1


def test_a_failed_write_is_truncated_by_the_next_append_if_need_be(
    open_log: OpenLog, disk: FaultyFiles
) -> None:
    log = open_log()
    append(log)
    size = log.size
    disk.room, disk.truncation_fails = 30, True
    refused(log)
    assert log.active.file.size() == size + 30
    disk.room = None
    refused(log)
    disk.truncation_fails = False
    assert append(log) == 1
    assert open_log().log_end_offset == 2


def test_a_failed_fsync_takes_the_log_out_of_use(open_log: OpenLog, disk: FaultyFiles) -> None:
    log = open_log()
    append(log)
    disk.sync_fails = True
    with pytest.raises(KafkaError, match="fsync failed"):
        log.flush()
    disk.sync_fails = False
    assert log.recovery_point == 0
    assert "out of use" in refused(log)
    with pytest.raises(KafkaError):
        log.flush()
    with pytest.raises(KafkaError):
        log.reader.read(0, 100, max_offset=1, min_one=True)
    log.close()
    assert log.recovery_point == 0
