"""Appends, reads and refusals on one log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla_broker.log.log import Log
from ottla_broker.log.validator import AppendInfo, RecordsRefused
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import read_header
from ottla_protocol.records.record import decode_records, encode_batch

from .batches import batch
from .conftest import NOW_MS, OpenLog


def produce(log: Log, data: bytearray, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> AppendInfo:
    return log.append(memoryview(data), leader_epoch=leader_epoch, now_ms=now_ms, from_client=True)


def refused(log: Log, data: bytearray) -> tuple[ErrorCode, str]:
    end, size = log.log_end_offset, log.size
    with pytest.raises(KafkaError) as caught:
        produce(log, data)
    assert (log.log_end_offset, log.size) == (end, size)
    assert caught.value.message is not None
    assert "flights-0" in caught.value.message
    return caught.value.code, caught.value.message


def read(
    log: Log, offset: int, max_bytes: int = 1 << 20, max_offset: int = 1 << 62, min_one: bool = True
) -> bytes:
    part = log.reader.read(offset, max_bytes, max_offset=max_offset, min_one=min_one)
    return b"" if part is None else part.read()


def test_offsets_and_epochs_are_assigned_in_place_and_the_rest_stays(open_log: OpenLog) -> None:
    log = open_log()
    first, second = batch(3), batch(2)
    original = bytes(second)
    info = produce(log, first, leader_epoch=4)
    assert (info.first_offset, info.last_offset, info.size, info.duplicate) == (0, 2, len(first), False)
    assert (info.log_append_time, info.log_start_offset, info.flush_due) == (-1, 0, False)
    info = produce(log, second, leader_epoch=5)
    assert (info.first_offset, info.last_offset) == (3, 4)
    assert log.log_end_offset == 5
    assert read_header(second).base_offset == 3
    assert read_header(second).partition_leader_epoch == 5
    assert second[16:] == original[16:]
    assert read(log, 0) == bytes(first) + bytes(second)
    assert log.epoch_end_offset(4) == (4, 3)
    assert log.epoch_end_offset(5) == (5, 5)
    assert log.epoch_end_offset(6) == (-1, -1)
    assert log.epoch_end_offset(3) == (3, 0)


def test_reads_give_the_batch_that_holds_the_offset(open_log: OpenLog) -> None:
    log = open_log()
    stored = [batch(3, size=None) for _ in range(10)]
    for one in stored:
        produce(log, one)
    for offset in range(30):
        assert read(log, offset).startswith(bytes(stored[offset // 3]))
    assert read(log, 30) == b""
    for offset in (31, -1):
        with pytest.raises(KafkaError) as caught:
            read(log, offset)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_nothing_at_or_above_max_offset_is_read(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=400)
    size = len(batch(3))
    for _ in range(20):
        produce(log, batch(3))
    for start in range(0, 60, 3):
        for bound in range(61):
            data = read(log, start, max_offset=bound)
            offsets = [header[0] for header in _headers(data)]
            assert all(offset + 2 < bound for offset in offsets), (start, bound, offsets)
            if bound >= start + 3:
                assert offsets[0] == start
            else:
                assert not data
    assert size * 2 < 400


def _headers(data: bytes) -> list[tuple[int, int]]:
    found, position = [], 0
    while position < len(data):
        header = read_header(data, position)
        found.append((header.base_offset, header.last_offset))
        position += header.size
    return found


def test_a_sequential_reader_gets_every_batch_once_and_whole(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=3000, index_interval_bytes=300)
    for number in range(200):
        produce(log, batch(1 + number % 4))
    for max_bytes in (1, 150, 700, 10_000):
        offset, seen = 0, []
        while offset < log.log_end_offset:
            data = memoryview(read(log, offset, max_bytes))
            position = 0
            while len(data) - position >= 61 and read_header(data, position).size <= len(data) - position:
                header = read_header(data, position)
                seen.append((header.base_offset, header.last_offset))
                position += header.size
            assert position
            offset = seen[-1][1] + 1
        assert [first for first, _ in seen] == [0] + [last + 1 for _, last in seen[:-1]]
        assert seen[-1][1] + 1 == log.log_end_offset


def test_min_one_decides_about_a_first_batch_that_is_too_large(open_log: OpenLog) -> None:
    log = open_log()
    large = batch(1, size=5000)
    produce(log, large)
    produce(log, batch(1))
    assert read(log, 0, 100, min_one=True) == bytes(large)
    assert read(log, 0, 100, min_one=False) == b""


def test_slices_of_removed_segments_stay_readable(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=300, file_delete_delay_ms=0)
    stored = [batch(2) for _ in range(12)]
    for one in stored:
        produce(log, one)
    part = log.reader.read(0, 1 << 20, max_offset=24, min_one=True)
    assert part is not None
    log.advance_log_start_offset(20)
    assert log.delete_old_segments(NOW_MS) > 0
    assert part.read().startswith(bytes(stored[0]))
    with pytest.raises(KafkaError):
        read(log, 0)
    assert read(log, 20).startswith(bytes(stored[10]))


def test_segments_roll_by_size_and_start_at_the_next_offset(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=250)
    for _ in range(9):
        produce(log, batch(1, size=100))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    assert all(segment.size <= 250 for segment in log.segments)


def test_segments_roll_by_the_time_between_batches(open_log: OpenLog) -> None:
    log = open_log(segment_ms=1000)
    produce(log, batch(1, timestamp=NOW_MS))
    produce(log, batch(1, timestamp=NOW_MS + 1000))
    assert len(log.segments) == 1
    produce(log, batch(1, timestamp=NOW_MS + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segments_roll_when_an_index_is_full(open_log: OpenLog) -> None:
    log = open_log(segment_index_bytes=48, index_interval_bytes=0)
    for _ in range(12):
        produce(log, batch(1))
    assert [segment.base_offset for segment in log.segments] == [0, 4, 8]


def test_segments_roll_before_a_relative_offset_overflows(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_follower(batch(1, base_offset=0))
    log.append_as_follower(batch(1, base_offset=2**31 - 1))
    assert len(log.segments) == 1
    log.append_as_follower(batch(1, base_offset=2**31))
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]
    assert read(log, 5).startswith(bytes(batch(1, base_offset=2**31 - 1)))


def test_a_batch_larger_than_a_segment_is_refused(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=500)
    assert refused(log, batch(1, size=501))[0] is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (batch(1)[:-1], ErrorCode.INVALID_RECORD),
        (batch(1)[:40], ErrorCode.INVALID_RECORD),
        (batch(1) + batch(1), ErrorCode.INVALID_RECORD),
        (batch(1, base_offset=1), ErrorCode.INVALID_RECORD),
        (batch(1, count=2), ErrorCode.INVALID_RECORD),
        (batch(2, last_delta=5), ErrorCode.INVALID_RECORD),
        (batch(2, count=-3, last_delta=-4), ErrorCode.INVALID_RECORD),
        (batch(1, count=2_000_000_000, last_delta=1_999_999_999), ErrorCode.INVALID_RECORD),
        (batch(1, attributes=5), ErrorCode.INVALID_RECORD),
        (batch(1, attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
        (batch(1, attributes=0x10), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (batch(1, attributes=0x20), ErrorCode.INVALID_RECORD),
        (batch(1, attributes=0x40), ErrorCode.INVALID_RECORD),
        (batch(1, attributes=0x80), ErrorCode.INVALID_RECORD),
        (batch(1, producer_id=1, epoch=0, sequence=-1), ErrorCode.INVALID_RECORD),
        (batch(1, producer_id=1, epoch=-1, sequence=0), ErrorCode.INVALID_RECORD),
        (batch(1, size=2000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(1)[:16] + b"\x01" + batch(1)[17:], ErrorCode.INVALID_RECORD),
        (batch(1)[:16] + b"\x03" + batch(1)[17:], ErrorCode.CORRUPT_MESSAGE),
        (batch(1)[:8] + b"\0\0\0\0" + batch(1)[12:], ErrorCode.CORRUPT_MESSAGE),
        (batch(1)[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_batches_that_a_producer_may_not_send_are_refused(
    open_log: OpenLog, data: bytearray, code: ErrorCode
) -> None:
    log = open_log(max_message_bytes=1500)
    produce(log, batch(2))
    assert refused(log, data)[0] is code
    assert produce(log, batch(1)).first_offset == 2


def test_an_old_message_format_is_refused_with_its_name(open_log: OpenLog) -> None:
    old = batch(1)
    old[16] = 0
    assert "message format v0" in refused(open_log(), old)[1]


def test_log_append_time_replaces_the_producers(open_log: OpenLog) -> None:
    log = open_log(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=1)
    info = produce(log, batch(2, timestamp=5), now_ms=NOW_MS + 7)
    assert info.log_append_time == NOW_MS + 7
    records = decode_records(read(log, 0))
    assert [record.timestamp for record in records] == [NOW_MS + 7] * 2
    assert log.reader.offset_for_timestamp(NOW_MS) == (0, NOW_MS + 7, 0)


def test_timestamps_out_of_range_are_refused(open_log: OpenLog) -> None:
    log = open_log(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    assert refused(log, batch(1, timestamp=NOW_MS + 501))[0] is ErrorCode.INVALID_TIMESTAMP
    assert refused(log, batch(1, timestamp=NOW_MS - 1001))[0] is ErrorCode.INVALID_TIMESTAMP
    assert refused(log, batch(700, timestamp=NOW_MS))[0] is ErrorCode.INVALID_TIMESTAMP
    produce(log, batch(1, timestamp=NOW_MS + 500))
    produce(log, batch(1, timestamp=NOW_MS - 1000))
    produce(log, batch(1, timestamp=-1))


def test_a_compacted_topic_needs_keys(open_log: OpenLog) -> None:
    log = open_log(compact=True, delete=False)
    code, message = refused(log, batch(2, key=None))
    assert code is ErrorCode.INVALID_RECORD
    assert "key" in message
    produce(log, batch(2))


def test_a_refusal_names_its_records(open_log: OpenLog) -> None:
    log = open_log(compact=True, delete=False)
    records = [(NOW_MS, None if number in (1, 4) else b"k", b"v", ()) for number in range(6)]
    for codec in (0, 1):
        with pytest.raises(RecordsRefused) as caught:
            produce(log, encode_batch(records, codec=codec))
        assert [number for number, _ in caught.value.records] == [1, 4]
    log = open_log(message_timestamp_after_max_ms=500)
    late = [(NOW_MS + 250 * number, b"k", b"v", ()) for number in range(4)]
    with pytest.raises(RecordsRefused) as caught:
        produce(log, encode_batch(late))
    assert [number for number, _ in caught.value.records] == [3]
    assert str(NOW_MS + 750) in caught.value.records[0][1]


def test_a_topic_with_its_own_compression_recompresses(open_log: OpenLog) -> None:
    log = open_log(compression_type="gzip")
    sent = batch([b"a" * 500, b"b" * 500], producer_id=9, epoch=1, sequence=0)
    records = decode_records(sent)
    info = produce(log, sent)
    assert info.size < 500
    header = read_header(read(log, 0))
    assert (header.codec, header.producer_id, header.base_sequence, header.record_count) == (1, 9, 0, 2)
    assert decode_records(read(log, 0)) == records
    log.config = replace(log.config, compression_type="uncompressed")
    produce(log, encode_batch([(NOW_MS, b"k", b"v" * 100, ())], codec=3))
    assert read_header(read(log, 2)).codec == 0


def test_flush_is_due_after_flush_messages(open_log: OpenLog) -> None:
    log = open_log(flush_messages=3)
    assert not produce(log, batch(2)).flush_due
    assert produce(log, batch(1)).flush_due
    log.flush()
    assert log.recovery_point == 3
    assert not produce(log, batch(1)).flush_due


def test_followers_keep_the_leaders_offsets_and_epochs(open_log: OpenLog) -> None:
    log = open_log()
    fetched = batch(2, base_offset=10, leader_epoch=3) + batch(1, base_offset=15, leader_epoch=4)
    info = log.append_as_follower(fetched + batch(1, base_offset=16)[:50])
    assert (info.first_offset, info.last_offset, info.size) == (10, 15, len(fetched))
    assert log.log_end_offset == 16
    assert log.epoch_end_offset(3) == (3, 15)
    assert read(log, 12) == bytes(batch(1, base_offset=15, leader_epoch=4))
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(batch(1, base_offset=15))
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_coordinators_append_several_batches_at_once(open_log: OpenLog) -> None:
    log = open_log(compact=True)
    produce(log, batch(1))
    info = log.append(batch(2) + batch(3), leader_epoch=1, now_ms=NOW_MS, from_client=False)
    assert (info.first_offset, info.last_offset) == (1, 5)
    assert _headers(read(log, 0)) == [(0, 0), (1, 2), (3, 5)]
    broken = batch(1) + batch(1)[:-1] + b"?"
    with pytest.raises(KafkaError):
        log.append(broken, leader_epoch=1, now_ms=NOW_MS, from_client=False)
    assert log.log_end_offset == 6


def test_scanning_gives_runs_of_whole_batches(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=700)
    for _ in range(40):
        produce(log, batch(3))
    runs = list(log.reader.scan_batches(4, 100, chunk_bytes=350))
    assert len(runs) > 10
    assert _headers(b"".join(runs)) == [(first, first + 2) for first in range(3, 99, 3)]


def test_closing_twice_and_opening_again_gives_the_same_log(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=500)
    for _ in range(20):
        produce(log, batch(2), leader_epoch=1)
    log.close()
    log.close()
    again = open_log(lazy=True, clean=True, recovery_point=log.recovery_point, segment_bytes=500)
    assert not again.is_open
    assert again.open().log_end_offset == 40
    assert again.is_open
    assert read(again, 0) == read(log, 0)
    assert again.epoch_end_offset(1) == (1, 40)
    assert produce(again, batch(1)).first_offset == 40


def test_a_reader_at_the_end_goes_on_in_the_next_segment(open_log: OpenLog) -> None:
    log = open_log()
    produce(log, batch())
    end = log.log_end_offset
    assert read(log, 0), "the log has noted where a reader that has everything goes on"
    assert not read(log, end)
    log.roll(NOW_MS)
    produce(log, batch())
    assert read_header(read(log, end)).base_offset == end
