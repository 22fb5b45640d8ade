"""Records in and out of batches, rebuilt batches, and corrupt batches."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.records.batch import (
    HEADER_SIZE,
    CorruptRecordError,
    crc_is_valid,
    read_header,
    set_log_append_time,
    write_header,
)
from ottla_protocol.records.compression import DecompressedTooLargeError, compress
from ottla_protocol.records.record import (
    Record,
    decode_records,
    encode_batch,
    encode_varint,
    rebuild_batch,
)

TIME = 1_700_000_000_000
CODECS = range(5)

# Lengths and deltas around the places where varints grow by a byte.
sizes = st.sampled_from((0, 1, 2, 62, 63, 64, 65, 8190, 8191, 8192, 8193)) | st.integers(0, 200)
payloads = st.none() | sizes.map(lambda size: b"p" * size) | st.binary(max_size=40)
deltas = st.sampled_from((0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**31, -(2**31), 2**41))
timestamps = (deltas | st.integers(-10_000, 10_000)).map(lambda delta: TIME + delta)
headers = st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=4).map(tuple)
rows = st.tuples(timestamps, payloads, payloads, st.just(()) | headers)


def raw_batch(body: bytes, count: int = 1, **changes: int) -> bytes:
    """A batch with ``body`` behind its header, whatever that is."""
    header = read_header(encode_batch([(TIME, None, None, ())]))
    batch = bytearray(HEADER_SIZE) + body
    fields = {
        "record_count": count,
        "batch_length": len(batch) - 12,
        "last_offset_delta": max(count - 1, 0),
        **changes,
    }
    write_header(batch, 0, header._replace(**fields))
    return bytes(batch)


def raw_record(
    *,
    attributes: bytes = b"\0",
    timestamp: bytes = b"\0",
    offset: bytes = b"\0",
    key: bytes = b"\x06key",
    value: bytes = b"\x0avalue",
    headers: bytes = b"\0",
    length: int | None = None,
) -> bytes:
    body = attributes + timestamp + offset + key + value + headers
    return encode_varint(len(body) if length is None else length) + body


@given(st.lists(rows, min_size=1, max_size=12), st.sampled_from(CODECS), st.integers(0, 2**62))
def test_round_trip(records: list[Any], codec: int, base_offset: int) -> None:
    batch = encode_batch(records, base_offset=base_offset, codec=codec)
    header = read_header(batch)
    assert crc_is_valid(batch, 0, header)
    assert header.size == len(batch)
    assert header.base_timestamp == records[0][0]
    assert header.max_timestamp == max(row[0] for row in records)
    decoded = decode_records(b"..." + batch + b"...", 3)
    assert decoded == [Record(offset, *row) for offset, row in enumerate(records, base_offset)]
    assert all(type(record) is Record for record in decoded)
    assert encode_batch(decoded, base_offset=base_offset, codec=codec) == batch


def test_offsets_of_three_bytes() -> None:
    records = [(TIME, b"%d" % number, b"v", ()) for number in range(20_000)]
    decoded = decode_records(encode_batch(records))
    assert [record.offset for record in decoded] == list(range(20_000))
    assert [record[1:] for record in decoded] == records


def test_values_may_be_any_bytes_like() -> None:
    batch = encode_batch([(TIME, bytearray(b"key"), memoryview(b"value"), (("h", bytearray(b"x")),))])  # type: ignore[arg-type]
    assert decode_records(batch) == [Record(0, TIME, b"key", b"value", (("h", b"x"),))]


def test_header_names_that_are_not_utf8_survive() -> None:
    body = raw_record(headers=b"\x02\x04\xff\xfe\x02x")
    (record,) = decode_records(raw_batch(body))
    assert record.headers == (("\udcff\udcfe", b"x"),)
    again = encode_batch([record])
    assert again[HEADER_SIZE:] == body


def test_names_that_cannot_be_encoded() -> None:
    for name in ("\ud800", None, b"bytes"):
        with pytest.raises(LocalProtocolError, match="cannot be named"):
            encode_batch([(TIME, None, None, ((name, b""),))])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"base_offset": 2**63},
        {"leader_epoch": 2**31},
        {"producer_id": -(2**63) - 1},
        {"producer_epoch": 2**15},
        {"base_sequence": 2**31},
    ],
    ids=lambda options: next(iter(options)),
)
def test_numbers_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError, match="does not fit"):
        encode_batch([(TIME, None, None, ())], **options)


def test_timestamps_too_far_apart() -> None:
    with pytest.raises(LocalProtocolError, match="ms apart"):
        encode_batch([(-(2**63), None, None, ()), (2**63 - 1, None, None, ())])
    with pytest.raises(LocalProtocolError, match="does not fit"):
        encode_batch([(2**63, None, None, ())])


def test_a_batch_needs_a_record_and_a_codec_that_exists() -> None:
    with pytest.raises(LocalProtocolError, match="needs a record"):
        encode_batch([])
    with pytest.raises(LocalProtocolError, match="codec 5"):
        encode_batch([(TIME, None, None, ())], codec=5)


def test_flags_and_producer_are_written() -> None:
    batch = encode_batch(
        [(TIME, b"k", b"v", ())],
        producer_id=7,
        producer_epoch=8,
        base_sequence=9,
        transactional=True,
        control=True,
        log_append_time=True,
    )
    header = read_header(batch)
    assert header.is_transactional
    assert header.is_control
    assert header.is_log_append_time
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 8, 9)
    assert decode_records(batch)[0].timestamp == TIME


# Lies. Each is refused as a CorruptRecordError, in the fast loop's layout and outside it.


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(raw_record(length=5), id="length too short"),
        pytest.param(raw_record(length=40), id="length too long"),
        pytest.param(raw_record(length=-1), id="length negative"),
        pytest.param(b"\xff" * 5 + raw_record()[1:], id="length of five full bytes"),
        pytest.param(b"\x80" * 5 + b"\0" + raw_record()[1:], id="length of six bytes"),
        pytest.param(raw_record(timestamp=b"\xff" * 9 + b"\x02"), id="timestamp of 65 bits"),
        pytest.param(raw_record(timestamp=b"\x80" * 10 + b"\0"), id="timestamp of eleven bytes"),
        pytest.param(raw_record(timestamp=encode_varint(2**63 - 1)), id="timestamp beyond int64"),
        pytest.param(raw_record(offset=b"\x01"), id="offset delta negative"),
        pytest.param(raw_record(offset=b"\xff" * 4 + b"\x1f"), id="offset delta of 33 bits"),
        pytest.param(raw_record(offset=b"\x80" * 5 + b"\0"), id="offset delta of six bytes"),
        pytest.param(raw_record(key=b"\x03"), id="key length -2"),
        pytest.param(raw_record(key=b"\x7fkey"), id="key length -64"),
        pytest.param(raw_record(key=b"\x7ekey"), id="key past the end"),
        pytest.param(raw_record(key=b"\xfe\xff\xff\xff\x0fkey"), id="key of 2 GiB"),
        pytest.param(raw_record(key=b"\x80" * 6), id="key length of more than five bytes"),
        pytest.param(raw_record(value=b"\x03"), id="value length -2"),
        pytest.param(raw_record(value=b"\x0cvalue"), id="value into the header count"),
        pytest.param(raw_record(value=b"\x80\x7fvalue"), id="value past the end"),
        pytest.param(raw_record(value=b"\xfe\xff\xff\xff\x0fvalue"), id="value of 2 GiB"),
        pytest.param(raw_record(headers=b""), id="no header count"),
        pytest.param(raw_record(headers=b"\x01"), id="header count -1"),
        pytest.param(raw_record(headers=b"\x02"), id="header missing"),
        pytest.param(raw_record(headers=b"\x04\x02a\x02b"), id="second header missing"),
        pytest.param(raw_record(headers=b"\xfe\xff\xff\xff\x0f"), id="two billion headers"),
        pytest.param(raw_record(headers=b"\x80" * 6), id="header count of more than five bytes"),
        pytest.param(raw_record(headers=b"\x02\x01\x02b"), id="header name null"),
        pytest.param(raw_record(headers=b"\x02\x7ea\x02b"), id="header name past the end"),
        pytest.param(raw_record(headers=b"\x02\x02a"), id="header value missing"),
        pytest.param(raw_record(headers=b"\x02\x02a\x03"), id="header value length -2"),
        pytest.param(raw_record(headers=b"\x02\x02a\x7eb"), id="header value past the end"),
        pytest.param(raw_record(headers=b"\x02\x02a\xfe\xff\xff\xff\x0fb"), id="header value of 2 GiB"),
        pytest.param(raw_record(headers=b"\0\0"), id="a byte too many"),
        pytest.param(raw_record() + b"\0", id="bytes behind the last record"),
        pytest.param(raw_record() + raw_record(), id="a record too many"),
        pytest.param(b"\0" * 7, id="an empty record"),
    ],
)
@pytest.mark.parametrize("before", [0, 1])
def test_corrupt_records(record: bytes, before: int) -> None:
    batch = raw_batch(raw_record() * before + record, before + 1)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError):
            decode_records(batch)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [-1, -(2**31), 2, 3, 4, 1000, 2**31 - 1])
def test_false_counts(codec: int, count: int) -> None:
    body = raw_record()
    batch = raw_batch(compress(codec, body), count, attributes=codec)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError):
            decode_records(batch)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_count_of_zero_is_an_empty_batch() -> None:
    assert decode_records(raw_batch(b"", 0)) == []
    assert decode_records(raw_batch(raw_record(), 0)) == []


def test_offsets_and_timestamps_stay_within_64_bits() -> None:
    with pytest.raises(CorruptRecordError, match="cannot be numbered"):
        decode_records(raw_batch(raw_record(), base_offset=2**63 - 1))
    for base, delta in ((2**63 - 1, b"\x02"), (-(2**63), b"\x01")):
        with pytest.raises(CorruptRecordError, match="beyond 64 bits"):
            decode_records(raw_batch(raw_record(timestamp=delta), base_timestamp=base))
    (record,) = decode_records(raw_batch(raw_record(), base_timestamp=-(2**63)))
    assert record.timestamp == -(2**63)


def test_long_varints_are_read() -> None:
    body = raw_record(
        timestamp=b"\x80\x80\0", offset=b"\x82\0", key=b"\x86\0key", value=b"\x8a\x80\x80\0value"
    )
    (record,) = decode_records(raw_batch(body))
    assert record == Record(1, TIME, b"key", b"value")


def test_the_attributes_of_a_record_do_not_matter() -> None:
    (record,) = decode_records(raw_batch(raw_record(attributes=b"\xff")))
    assert record == Record(0, TIME, b"key", b"value")


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_of_a_batch(codec: int) -> None:
    batch = encode_batch([(TIME, b"key", b"value" * 30, (("h", b"x"),)), (TIME, None, None, ())], codec=codec)
    for size in range(len(batch)):
        with pytest.raises(CorruptRecordError):
            decode_records(batch[:size])
    for size in range(HEADER_SIZE, len(batch)):  # cut, with a length that hides it
        cut = batch[:size]
        struct.pack_into(">i", cut, 8, size - 12)
        with pytest.raises(CorruptRecordError):
            decode_records(cut)


def test_decompression_is_bounded() -> None:
    batch = encode_batch([(TIME, None, bytes(1_000_000), ())], codec=4)
    assert len(batch) < 1000
    assert len(decode_records(batch, max_bytes=1_000_020)) == 1
    with pytest.raises(DecompressedTooLargeError):
        decode_records(batch, max_bytes=999_999)


# Batches rebuilt with some of their records.


@given(st.lists(rows, min_size=1, max_size=10), st.data(), st.sampled_from(CODECS))
def test_kept_records_keep_their_offsets(records: list[Any], data: Any, codec: int) -> None:
    original = encode_batch(
        records,
        base_offset=1000,
        codec=codec,
        leader_epoch=6,
        producer_id=7,
        producer_epoch=8,
        base_sequence=9,
        transactional=True,
    )
    header = read_header(original)
    every = decode_records(original)
    kept = [record for record in every if data.draw(st.booleans())]
    batch = rebuild_batch(header, kept)
    rebuilt = read_header(batch)
    assert crc_is_valid(batch, 0, rebuilt)
    assert decode_records(batch) == kept
    assert (rebuilt.base_offset, rebuilt.last_offset) == (header.base_offset, header.last_offset)
    assert rebuilt[9:12] == header[9:12]
    assert rebuilt.last_sequence == header.last_sequence
    assert rebuilt.partition_leader_epoch == 6
    assert rebuilt.is_transactional
    assert rebuilt.record_count == len(kept)
    if kept:
        assert rebuilt.codec == codec
        assert rebuilt.max_timestamp == max(record.timestamp for record in kept)
        assert rebuilt.base_timestamp == kept[0].timestamp
    else:
        assert len(batch) == HEADER_SIZE
        assert rebuilt.codec == 0
        assert rebuilt.max_timestamp == header.max_timestamp
        assert rebuilt.base_timestamp == -1


def test_log_append_time_stays_the_batch_s() -> None:
    original = encode_batch([(TIME, b"a", b"1", ()), (TIME + 1, b"b", b"2", ())])
    header = set_log_append_time(original, 0, read_header(original), TIME + 77)
    for kept in ([], decode_records(original)[1:]):
        rebuilt = read_header(rebuild_batch(header, kept))
        assert rebuilt.is_log_append_time
        assert rebuilt.max_timestamp == TIME + 77


@pytest.mark.parametrize("stray", [999, 1003])
def test_a_record_of_another_batch_is_refused(stray: int) -> None:
    header = read_header(encode_batch([(TIME, None, b"v", ())] * 3, base_offset=1000))
    with pytest.raises(LocalProtocolError, match="do not belong"):
        rebuild_batch(header, [Record(stray, TIME, None, b"v")])


@pytest.mark.parametrize(
    "number", [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
)
def test_varints_are_those_of_protocol_buffers(number: int) -> None:
    encoded = encode_varint(number)
    unsigned = 0
    for shift, byte in enumerate(encoded):
        assert (byte < 128) is (shift == len(encoded) - 1)
        unsigned |= (byte & 127) << 7 * shift
    assert (unsigned >> 1) ^ -(unsigned & 1) == number
    assert len(encoded) == max(1, -(-unsigned.bit_length() // 7))
