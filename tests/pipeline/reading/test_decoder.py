"""The decoder, compiled or not, accepts and refuses the same as ``ottla_protocol``."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.reading.logs import ALL, TIME, batch, decode, expected, rows_of
from tests.support.depth import examples

from ottla_pipeline.reading import CorruptBatch, CorruptData, DataLoss, OffsetRange
from ottla_pipeline.reading import batches as batches_module
from ottla_pipeline.reading.aborted import Aborted
from ottla_pipeline.reading.batches import as_octets, find_batches
from ottla_protocol.records.batch import (
    HEADER_SIZE,
    CorruptRecordError,
    read_header,
    write_crc,
    write_header,
)
from ottla_protocol.records.control import encode_transaction_marker
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import (
    Record,
    decode_records,
    encode_batch,
    encode_varint,
    finish_batch,
    rebuild_batch,
)

WAYS = ("plain", "compiled")
EVERYTHING = OffsetRange("t", "", 0, 0, 2**62)

sizes = st.sampled_from((0, 1, 62, 63, 64, 65, 8191, 8192)) | st.integers(0, 200)
payloads = st.none() | sizes.map(lambda size: b"p" * size) | st.binary(max_size=40)
deltas = st.sampled_from((0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8193, 2**31, -(2**31), 2**41))
times = st.just(TIME) | (deltas | st.integers(-10_000, 10_000)).map(lambda delta: TIME + delta)
names = st.text(max_size=70) | st.just("\udcff\udc80x")
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=70)), max_size=4).map(tuple)
records = st.tuples(times, payloads, payloads, st.just(()) | st.just(()) | headers)
batches = st.tuples(
    st.lists(records, min_size=1, max_size=12), st.integers(0, 4), st.booleans(), st.integers(0, 3)
)


def log_of(made: list[tuple[list[Any], int, bool, int]]) -> bytearray:
    """Consecutive batches, with records missing at the end of each, as after compaction."""
    data = bytearray()
    offset = 3
    for rows, codec, log_append_time, gone in made:
        one = encode_batch(rows, base_offset=offset, codec=codec, log_append_time=log_append_time)
        if gone:
            header = read_header(one)
            kept = decode_records(one)[gone - 1 : -1]
            one = rebuild_batch(header, kept)
        data += one
        offset += len(rows) + gone
    return data


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(20))
@given(st.lists(batches, min_size=1, max_size=5), st.integers(0, 40), st.integers(0, 40))
def test_same_records(way: str, made: list[Any], start: int, length: int) -> None:
    data = log_of(made)
    for range in (EVERYTHING, OffsetRange("t", "", 0, start, start + length)):
        assert rows_of(decode(data, range, way)) == expected(data, range)
        assert rows_of(decode(data, range, way, batch_rows=1)) == expected(data, range)


@settings(max_examples=examples(15))
@given(st.lists(batches, min_size=1, max_size=3), st.sets(st.sampled_from(ALL), min_size=1))
def test_only_the_columns_asked_for(made: list[Any], wanted: set[str]) -> None:
    data = log_of(made)
    whole = decode(data, EVERYTHING, "plain")
    columns = tuple(wanted)
    for way in WAYS:
        part = decode(data, EVERYTHING, way, columns=columns)
        assert part.equals(whole.select(list(columns)))


@pytest.mark.parametrize("way", WAYS)
def test_spark_types(way: str) -> None:
    table = decode(batch(0, 3), EVERYTHING, way)
    types = [str(field.type) for field in table.schema]
    assert types == [
        *("binary", "binary", "string", "int32", "int64", "timestamp[us, tz=UTC]", "int32"),
        "list<element: struct<key: string, value: binary>>",
    ]
    assert table.column("headers").null_count == 3


def outcome(data: bytes | bytearray, way: str) -> list[Any] | None:
    """The rows; None for corrupt data."""
    try:
        return rows_of(decode(data, EVERYTHING, way))
    except CorruptData:
        return None


def by_protocol(data: bytes | bytearray) -> list[Any] | None:
    try:
        return expected(data, EVERYTHING)
    except CorruptRecordError:
        return None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", range(5))
def test_every_bit_that_flips_is_noticed(way: str, codec: int) -> None:
    """With the checksum as it was: nothing but the fields before it can change unseen."""
    good = batch(0, 4, codec=codec)
    rows = rows_of(decode(good, EVERYTHING, way))
    for at in range(16, len(good)):
        for bit in (1, 128):
            data = bytearray(good)
            data[at] ^= bit
            assert outcome(data, way) is None
    assert outcome(good, way) == rows


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", range(5))
def test_every_bit_that_flips_under_a_right_checksum(way: str, codec: int) -> None:
    """What the format forbids is refused, what it allows is read, exactly as ``ottla_protocol`` does."""
    rows = [(TIME, b"k", b"v" * 70, (("h", b"x"), ("i", None))), (TIME + 70, None, None, ())]
    good = encode_batch(rows, codec=codec)
    for at in range(21, len(good)):
        for bit in (0, 1, 6, 7) if codec else range(8):
            data = bytearray(good)
            data[at] ^= 1 << bit
            write_crc(data, 0, len(data))
            theirs = by_protocol(data)
            header = read_header(data)
            if header.last_offset_delta < 0 or header.is_control:
                continue  # the walk refuses the one, and nothing reads the other
            assert outcome(data, way) == theirs, f"byte {at}, bit {bit}"


@settings(max_examples=examples(50))
@given(
    st.lists(records, min_size=1, max_size=4),
    st.binary(min_size=1, max_size=12),
    st.integers(0, 400),
    st.booleans(),
)
def test_any_bytes_in_the_records(rows: list[Any], junk: bytes, at: int, insert: bool) -> None:
    data = encode_batch(rows)
    at = HEADER_SIZE + at % (len(data) - HEADER_SIZE)
    data[at : at if insert else at + len(junk)] = junk
    write_header(data, 0, read_header(data)._replace(batch_length=len(data) - 12))
    write_crc(data, 0, len(data))
    theirs = by_protocol(data)
    for way in WAYS:
        assert outcome(data, way) == theirs


@pytest.mark.parametrize("way", WAYS)
def test_numbers_of_any_length(way: str) -> None:
    """Varints written longer than needed are allowed."""
    body = b"\0" + b"\x82\x00" + b"\x80\x80\x00" + b"\x82\x80\x00" + b"k" + b"\x81\x00" + b"\x80\x00"
    data = batch(0, 1)[:HEADER_SIZE] + encode_varint(len(body)) + body
    write_header(data, 0, read_header(data)._replace(batch_length=len(data) - 12))
    write_crc(data, 0, len(data))
    assert outcome(data, way) == by_protocol(data) == [(0, (TIME + 1) * 1000, b"k", None, ())]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "time", [2**62, -(2**62), 2**63 - 1, 9_223_372_036_854_775, 9_223_372_036_854_776, -1]
)
def test_times_that_microseconds_cannot_say(way: str, time: int) -> None:
    data = encode_batch([(time, None, b"v", ())] * 40)
    assert outcome(data, way) == by_protocol(data)
    assert (decode(data, EVERYTHING, way).column("timestamp").null_count > 0) == (abs(time) > 2**63 // 1000)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", [0, 1, 4])
def test_what_is_unusual_in_a_compressed_batch(way: str, codec: int) -> None:
    """The plain decoder got the decompressed bytes as if they were the batch."""
    data = encode_batch([(2**61, None, b"v", ()), (-(2**61) - 5, None, b"w", ())], codec=codec)
    theirs = by_protocol(data)
    assert theirs is not None
    assert outcome(data, way) == theirs


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_that_claims_what_cannot_be(way: str) -> None:
    good = batch(0, 2)
    header = read_header(good)
    for change in (
        {"record_count": 2**31 - 1},
        {"record_count": -1},
        {"record_count": 1},
        {"base_offset": 2**63 - 10},
        {"attributes": 5},
    ):
        data = bytearray(good)
        write_header(data, 0, header._replace(**change))
        write_crc(data, 0, len(data))
        with pytest.raises(CorruptData, match="t-0: the record batch at offset"):
            decode(data, OffsetRange("t", "", 0, 0, 2**63 - 1), way)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_good_comes_before_what_is_not(way: str) -> None:
    data = batch(0, 5) + batch(5, 5) + batch(10, 5)
    data[len(batch(0, 5)) + 70] ^= 1
    aside: list[CorruptBatch] = []
    table = decode(data, OffsetRange("t", "", 0, 2, 14), way, set_aside=aside)
    assert table.column("offset").to_pylist() == [2, 3, 4, 10, 11, 12, 13]
    (one,) = aside
    assert (one.topic, one.partition, one.first, one.last) == ("t", 0, 5, 9)
    assert one.reason == "its checksum is wrong"
    assert one.data == data[len(batch(0, 5)) :][: len(one.data)]
    with pytest.raises(CorruptData, match="at offset 5 can't be read: its checksum is wrong") as caught:
        decode(data, OffsetRange("t", "", 0, 2, 14), way)
    assert caught.value.offset == 5


@pytest.mark.parametrize("way", WAYS)
def test_one_broken_batch_among_many_of_a_group(way: str) -> None:
    good = [batch(at, 5) for at in range(0, 50, 5)]
    good[4][-1] = 2  # a header that isn't there
    write_crc(good[4], 0, len(good[4]))
    data = bytearray(b"".join(good))
    aside: list[CorruptBatch] = []
    table = decode(data, EVERYTHING, way, set_aside=aside)
    assert table.column("offset").to_pylist() == [*range(20), *range(25, 50)]
    assert [(one.first, one.last) for one in aside] == [(20, 24)]


@pytest.mark.parametrize("way", WAYS)
def test_a_record_has_a_hundred_thousand_headers_at_most(way: str) -> None:
    """A few kilobytes could be millions of them, which the plain decoder makes objects of."""

    def with_headers(offset: int, count: int) -> bytearray:
        return encode_batch([(TIME, None, b"v", (("", b""),) * count)], base_offset=offset, codec=4)

    data = with_headers(0, 100_000) + with_headers(1, 100_001) + batch(2, 2)
    aside: list[CorruptBatch] = []
    table = decode(data, EVERYTHING, way, set_aside=aside)
    assert table.column("offset").to_pylist() == [0, 2, 3]
    assert [(each.first, each.reason) for each in aside] == [
        (1, "a record has 100001 headers, at most 100000 are read")
    ]
    with pytest.raises(CorruptData, match="has 100001 headers"):
        decode(data, EVERYTHING, way, columns=("value",))


@pytest.mark.parametrize("way", WAYS)
def test_a_compressed_marker_is_small(way: str) -> None:
    whole = encode_transaction_marker(
        commit=False, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=0, base_offset=5
    )
    header = read_header(whole)
    body = bytearray(HEADER_SIZE) + whole[HEADER_SIZE:] * 1_000
    many = finish_batch(header._replace(attributes=header.attributes | 4, record_count=1_000), body)
    with pytest.raises(CorruptData, match="more than 1024 bytes"):
        decode(batch(0, 5) + many, EVERYTHING, way, aborted=[Aborted(7, 0)])


@pytest.mark.parametrize("way", WAYS)
def test_bytes_that_are_no_batch(way: str) -> None:
    data = batch(0, 5) + bytes(100)
    with pytest.raises(CorruptData, match=r"at offset 5 .*magic.* 0"):
        decode(data, EVERYTHING, way)
    assert decode(data, OffsetRange("t", "", 0, 0, 5), way).num_rows == 5


@pytest.mark.parametrize("way", WAYS)
def test_offsets_that_go_back(way: str) -> None:
    with pytest.raises(CorruptData, match="offsets 3 to 7 where none below 5 can be"):
        decode(batch(0, 5) + batch(3, 5), EVERYTHING, way)


@pytest.mark.parametrize("way", WAYS)
def test_records_written_in_place_of_lost_ones(way: str) -> None:
    data = batch(0, 5, leader_epoch=3) + batch(5, 5, leader_epoch=4)
    planned = OffsetRange("t", "", 0, 0, 10, leader_epoch=3)
    with pytest.raises(DataLoss, match=r"offsets 5 to 9 are lost \(truncation\)"):
        decode(data, planned, way)
    assert decode(data, planned, way, fail_on_data_loss=False).num_rows == 10
    assert decode(data, OffsetRange("t", "", 0, 0, 5, leader_epoch=3), way).num_rows == 5


@given(st.binary(max_size=300), st.booleans())
def test_both_walks_agree_on_any_bytes(junk: bytes, behind: bool) -> None:
    data = as_octets(bytes(batch(0, 3)) + junk if behind else junk) if behind or junk else as_octets(b"\0")
    with pytest.MonkeyPatch.context() as patch:
        one = find_batches(data, -1, 100)
        patch.setattr(batches_module, "module", None)
        other = find_batches(data, -1, 100)
    assert one.table.tolist() == other.table.tolist()
    assert one[2:] == other[2:]


def test_small_tables_are_continued() -> None:
    data = as_octets(b"".join(batch(at, 2) for at in range(0, 40, 2)))
    one, few = find_batches(data, -1, 100), find_batches(data, -1, 100, room=3)
    assert one.table.tolist() == few.table.tolist()
    assert len(one.table) == len(list(iter_headers(data)))


def test_large_batches_become_several() -> None:
    rows = [(TIME, None, b"v", ())] * 100
    decoded = decode(encode_batch(rows), EVERYTHING, "plain", batch_rows=30)
    assert [len(chunk) for chunk in decoded.column("offset").chunks] == [30, 30, 30, 10]


def test_pieces_of_arrow_stand_alone() -> None:
    """The bytes that are decoded may be overwritten afterwards."""
    data = batch(0, 100)
    for way in WAYS:
        copy = bytearray(data)
        table = decode(copy, EVERYTHING, way)
        before = rows_of(table)
        copy[:] = bytes(len(copy))
        assert rows_of(table) == before == [as_expected(record) for record in decode_records(data)]


def as_expected(record: Record) -> tuple[Any, ...]:
    return (record.offset, record.timestamp * 1000, record.key, record.value, ())


def test_the_compiled_engine_reads_nothing_beyond_its_buffers() -> None:
    module = pytest.importorskip("ottla_protocol.records._records")
    data = batch(0, 2)[HEADER_SIZE:]
    edges, room, valid = np.empty(3, np.int32), np.empty(len(data), np.uint8), np.empty(1, np.uint8)
    for piece in ([-1, 9, 1], [9, 8, 1], [0, len(data) + 1, 2], [0, len(data), 3], [0, len(data), -1]):
        fields = edges, room, valid
        pieces = np.array([*piece, 0, 0, 0])
        with pytest.raises(ValueError, match="batches within the data"):
            module.decode(data, pieces, 0, 9, 9, np.empty(6, np.int64), fields, fields)
    for start, size in ((-1, 1), (0, len(data) + 1), (len(data), 1), (2**62, 2**62), (2**63 - 1, 1)):
        with pytest.raises(ValueError, match="fields within the data"):
            module.gather(data, np.array([start, 0]), np.array([size, 0]), edges, room, valid)
    for place in (len(data), 2**62):
        with pytest.raises(ValueError, match="places"):
            module.headers(data, np.array([place, -1]), edges, np.empty((4, 1), np.int64))
    for low, high in ((-1, 1), (2, 1), (0, len(data) + 1)):
        with pytest.raises(ValueError, match="fields within the data"):
            module.hash_fields(data, np.array([low, high], np.int32), np.empty(1, np.uint64))
    with pytest.raises(ValueError, match="range within the data"):
        module.list_batches(data, 0, len(data) + 1, 0, 9, np.empty((1, 11), np.int64))


def test_what_importing_costs() -> None:
    """Spark imports every package like this one in each worker; neither numpy nor numba is needed to plan."""
    program = (
        "import sys, ottla_pipeline.reading as reading;"
        "reading.OffsetRange('t', '', 0, 0, 1); reading.ReadSettings('h:1');"
        "print([name for name in ('numpy', 'pyarrow', 'numba', 'ottla_client') if name in sys.modules])"
    )
    path = [each for each in sys.path if each]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {program}"],
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
