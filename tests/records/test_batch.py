"""Batch headers: what is read, refused and changed in place."""

from __future__ import annotations

import struct

import pytest

from ottla_protocol.errors import ProtocolError
from ottla_protocol.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    UnsupportedMagicError,
    assign_offset,
    crc_is_valid,
    read_header,
    set_log_append_time,
    set_max_timestamp,
)
from ottla_protocol.records.crc import crc32c
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import decode_records, encode_batch

TIME = 1_700_000_000_000


def batch(count: int = 3, **options: object) -> bytearray:
    rows = [(TIME + number, b"key", b"value", ()) for number in range(count)]
    return encode_batch(rows, **options)  # type: ignore[arg-type]


def message_set_v1() -> bytes:
    """One message of format 1 with neither key nor value: shorter than a header of format 2."""
    message = struct.pack(">IbbqII", 0, 1, 0, TIME, 0xFFFFFFFF, 0xFFFFFFFF)
    return struct.pack(">qi", 0, len(message)) + message


def test_crc32c_is_castagnoli_s() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(memoryview(b"56789"), crc32c(bytearray(b"1234"))) == 0xE3069283


def test_the_fields_of_a_header() -> None:
    written = batch(
        base_offset=40, leader_epoch=7, producer_id=4711, producer_epoch=2, base_sequence=9, codec=4
    )
    header = read_header(b"...." + written, 4)
    assert header == BatchHeader(
        base_offset=40,
        batch_length=len(written) - 12,
        partition_leader_epoch=7,
        magic=2,
        crc=header.crc,
        attributes=4,
        last_offset_delta=2,
        base_timestamp=TIME,
        max_timestamp=TIME + 2,
        producer_id=4711,
        producer_epoch=2,
        base_sequence=9,
        record_count=3,
    )
    assert header.size == len(written)
    assert header.last_offset == 42
    assert header.last_sequence == 11
    assert header.codec == 4
    assert header.delete_horizon_ms is None
    assert header.crc == crc32c(written[21:])


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (0, (False, False, False, False)),
        (LOG_APPEND_TIME, (True, False, False, False)),
        (TRANSACTIONAL, (False, True, False, False)),
        (CONTROL, (False, False, True, False)),
        (DELETE_HORIZON, (False, False, False, True)),
        (-1, (True, True, True, True)),
    ],
)
def test_flags(attributes: int, expected: tuple[bool, ...]) -> None:
    header = read_header(batch())._replace(attributes=attributes)
    flags = (header.is_log_append_time, header.is_transactional, header.is_control, header.has_delete_horizon)
    assert flags == expected
    assert header.delete_horizon_ms == (TIME if expected[3] else None)


@pytest.mark.parametrize(
    ("base", "delta", "last"), [(-1, 5, -1), (0, 0, 0), (2**31 - 1, 0, 2**31 - 1), (2**31 - 3, 5, 2)]
)
def test_sequences_start_again_at_zero(base: int, delta: int, last: int) -> None:
    header = read_header(batch())._replace(base_sequence=base, last_offset_delta=delta)
    assert header.last_sequence == last


@pytest.mark.parametrize("size", range(HEADER_SIZE))
def test_a_truncated_header(size: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"cut off in its header \\({size} of 61 bytes\\)"):
        read_header(batch()[:size])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_an_impossible_length(length: int) -> None:
    broken = batch()
    struct.pack_into(">i", broken, 8, length)
    with pytest.raises(CorruptRecordError, match=f"a length of {length}"):
        read_header(broken)
    with pytest.raises(CorruptRecordError, match=f"a length of {length}"):
        list(iter_headers(broken))


@pytest.mark.parametrize("magic", [0, 1, 3, 127, -1])
def test_other_formats_are_named(magic: int) -> None:
    other = batch()
    struct.pack_into(">b", other, 16, magic)
    for data in (other, other[:17]):
        with pytest.raises(UnsupportedMagicError, match=f"magic\\) {magic} ") as caught:
            read_header(data)
        assert caught.value.magic == magic
        assert isinstance(caught.value, ProtocolError)


def test_short_messages_of_older_formats_are_not_torn_batches() -> None:
    with pytest.raises(UnsupportedMagicError):
        read_header(message_set_v1())
    assert [header.magic for _, header in iter_headers(batch() + message_set_v1())] == [2, 1]


def test_headers_end_before_a_truncated_batch() -> None:
    first, second = batch(), batch(count=5)
    whole = first + second
    for size in range(len(whole) + 1):
        positions = [position for position, _ in iter_headers(memoryview(whole)[:size])]
        assert positions == [0, len(first)][: (size >= len(first)) + (size >= len(whole))]


def test_a_changed_byte_fails_the_crc_if_it_is_covered() -> None:
    good = batch()
    header = read_header(good)
    assert crc_is_valid(good, 0, header)
    for position in range(len(good)):
        changed = bytearray(good)
        changed[position] ^= 0x10
        covered = position >= 21
        assert crc_is_valid(changed, 0, header) is not covered


def test_a_truncated_batch_fails_the_crc() -> None:
    good = batch()
    assert not crc_is_valid(good[:-1], 0, read_header(good))


def test_offset_and_epoch_are_assigned_outside_the_crc() -> None:
    data = batch() + batch()
    position = len(data) // 2
    assign_offset(memoryview(data), position, 2**40, 12)
    header = read_header(data, position)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 12)
    assert crc_is_valid(data, position, header)
    assert read_header(data).base_offset == 0
    assert [record.offset for record in decode_records(data, position)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_log_append_time_is_every_record_s() -> None:
    data = bytearray(b"...") + batch(codec=1)
    before = read_header(data, 3)
    after = set_log_append_time(data, 3, before, TIME + 500)
    assert after == read_header(data, 3)
    assert after.is_log_append_time
    assert after.max_timestamp == TIME + 500
    assert after.base_timestamp == before.base_timestamp
    assert crc_is_valid(data, 3, after)
    assert {record.timestamp for record in decode_records(data, 3)} == {TIME + 500}


def test_offsets_assigned_before_a_timestamp_is_set_stay() -> None:
    data = batch()
    header = read_header(data)
    assign_offset(data, 0, 99, 3)
    set_log_append_time(data, 0, header, TIME)
    assert read_header(data).base_offset == 99


def test_the_max_timestamp_is_corrected() -> None:
    data = batch()
    header = read_header(data)
    assert set_max_timestamp(data, 0, header, header.max_timestamp) is header
    after = set_max_timestamp(data, 0, header, TIME + 1)
    assert after == read_header(data)
    assert after.max_timestamp == TIME + 1
    assert crc_is_valid(data, 0, after)
