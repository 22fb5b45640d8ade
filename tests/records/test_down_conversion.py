"""Batches as message sets of formats 0 and 1, for old consumers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.records.golden_files import load_messages
from tests.records.test_message_set import decode_set
from tests.support import bad_batches, depth

from ottla_protocol.records import compiled_messages, down_conversion
from ottla_protocol.records.batch import CONTROL, CorruptRecordError, read_header
from ottla_protocol.records.columns.decode import decode_columns
from ottla_protocol.records.columns.messages import ROWS, encode_message_columns
from ottla_protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, DecompressedTooLargeError
from ottla_protocol.records.control import encode_transaction_marker
from ottla_protocol.records.down_conversion import UnconvertibleError, down_convert
from ottla_protocol.records.formats import iter_headers, read_any_header
from ottla_protocol.records.message_set import encode_messages, read_message
from ottla_protocol.records.record import Record, encode_batch, finish_batch, rebuild_batch

TIME = 1_700_000_000_000
need_compiled = pytest.mark.skipif(not compiled_messages.IS_COMPILED, reason="the compiled module is missing")


@contextmanager
def in_python() -> Iterator[None]:
    """Without the compiled module."""
    with (
        patch.object(compiled_messages, "_compiled", None),
        patch.object(down_conversion, "IS_COMPILED", False),
    ):
        yield


@pytest.fixture(params=["compiled", "python"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test with the compiled module and without."""
    if request.param == "python":
        with in_python():
            yield
    elif compiled_messages.IS_COMPILED:
        yield
    else:
        pytest.skip("the compiled module is missing")


DOWN = [golden for golden in load_messages() if golden.kind == "down"]
MAGICS = (0, 1)

every_format = pytest.mark.parametrize("magic", MAGICS)


def converted(data: bytes | bytearray, magic: int, first_offset: int = 0, **options: Any) -> bytes:
    return b"".join(down_convert(memoryview(data), list(iter_headers(data)), magic, first_offset, **options))


def batch(count: int, first: int = 0, **options: Any) -> bytearray:
    rows = [(TIME + n, b"key%05d" % n, b"value%05d" % n, ()) for n in range(count)]
    return encode_batch(rows, base_offset=first, **options)


@pytest.mark.parametrize("golden", DOWN, ids=lambda golden: golden.name)
def test_kafka_s_conversions(golden: Any, way: None) -> None:
    ours = converted(golden.original, golden.magic, golden.first_offset)
    assert decode_set(ours) == decode_set(golden.data)
    found, expected = (list(iter_headers(data)) for data in (ours, golden.data))
    assert len(found) == len(expected)
    for (_, header), (_, like) in zip(found, expected, strict=True):
        ignored = {"crc": 0, "batch_length": 0} if header.codec else {}
        assert header._replace(**ignored) == like._replace(**ignored)
    if not any(header.codec for _, header in found):
        assert ours == golden.data


# Sizes as in batches of one layout, and of several.
fields = st.none() | st.binary(max_size=12)
uniform = st.tuples(
    st.sampled_from((None, b"", b"key", b"k" * 40)), st.sampled_from((None, b"", b"value", b"v" * 101))
)


@given(
    st.sampled_from(MAGICS),
    st.sampled_from((NONE, GZIP, SNAPPY, LZ4)),
    st.lists(st.tuples(st.integers(-5, 2**40), fields, fields), min_size=1, max_size=20)
    | st.tuples(st.integers(60, 300), uniform).map(lambda at: [(TIME + n % 7, *at[1]) for n in range(at[0])])
    | st.lists(uniform, min_size=64, max_size=70).map(lambda rows: [(TIME, *row) for row in rows]),
    st.booleans(),
    st.integers(0, 400),
    st.integers(0, 2**50),
)
def test_columns_are_encoded_as_records_are(
    magic: int,
    codec: int,
    rows: list[tuple[int, bytes | None, bytes | None]],
    log_append_time: bool,
    drop: int,
    base: int,
) -> None:
    data = encode_batch(
        [(*row, ()) for row in rows], base_offset=base, codec=codec, log_append_time=log_append_time
    )
    newest = read_header(data).max_timestamp
    records = [
        Record(base + n, newest if log_append_time else row[0], *row[1:]) for n, row in enumerate(rows)
    ]
    first = base + drop
    expected = [record for record in records if codec or record.offset >= first]
    stamp = newest if log_append_time else None
    wanted = encode_messages(expected, magic, codec=codec, append_time_ms=stamp) if expected else b""
    assert converted(data, magic, first) == wanted
    with in_python():
        assert converted(data, magic, first) == wanted


@every_format
def test_many_records(magic: int, way: None) -> None:
    """Rows of one layout, then of others, in several pieces; batches are taken together and apart."""
    data = bytearray()
    records: list[Record] = []
    for count, options in (
        (3 * ROWS, {}),
        (500, {}),
        (500, {"log_append_time": True}),
        (100, {"codec": GZIP}),
        (5000, {}),
        (1, {}),
    ):
        one = batch(count, len(records), **options)
        data += one
        newest = read_header(one).max_timestamp
        records += [
            Record(
                len(records) + n,
                newest if "log_append_time" in options else TIME + n,
                b"key%05d" % n,
                b"value%05d" % n,
            )
            for n in range(count)
        ]
    assert len(records) == 3 * ROWS + 6101
    expected = [record._replace(timestamp=record.timestamp if magic else -1) for record in records]
    assert decode_set(converted(data, magic)) == expected
    # What is compressed stays whole.
    packed = range(3 * ROWS + 1000, 3 * ROWS + 1100)
    for first in (ROWS + 1, packed[50], len(records) - 1, len(records)):
        wanted = [record for record in expected if record.offset >= first or record.offset in packed]
        assert decode_set(converted(data, magic, first)) == wanted


@every_format
def test_what_older_formats_lack_is_left_out(magic: int, way: None) -> None:
    marker = encode_transaction_marker(
        commit=True, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=TIME, base_offset=3
    )
    assert converted(marker, magic) == b""
    headers = encode_batch(
        [(TIME, b"k", b"v", (("h", b"1"),))], base_offset=4, producer_id=7, producer_epoch=0
    )
    data = batch(3) + marker + headers
    assert [record.offset for record in decode_set(converted(data, magic))] == [0, 1, 2, 4]
    empty = rebuild_batch(read_header(batch(3)), [])
    assert converted(empty, magic) == b""
    compacted = rebuild_batch(
        read_header(batch(9, codec=LZ4)), [Record(2, TIME, b"k", b"v"), Record(5, TIME, b"l", b"w")]
    )
    assert [record.offset for record in decode_set(converted(compacted, magic))] == [2, 5]
    assert read_message(converted(compacted, magic)).base_offset == 5


@every_format
def test_zstd(magic: int, way: None) -> None:
    data = batch(3) + batch(3, 3, codec=ZSTD) + batch(3, 6)
    pieces = down_convert(memoryview(data), list(iter_headers(data)), magic, 0)
    assert len(decode_set(next(pieces))) == 3
    with pytest.raises(UnconvertibleError):
        next(pieces)
    control = bytearray(batch(1, codec=ZSTD))
    header = read_header(control)
    marked = [(0, header._replace(attributes=header.attributes | CONTROL))]
    assert list(down_convert(memoryview(control), marked, magic, 0)) == []


@every_format
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_corrupt_batches(magic: int, codec: int, way: None) -> None:
    broken = batch(3, 3, codec=codec)
    broken[61:] = b"\xff" * (len(broken) - 61)
    data = batch(3) + broken
    with pytest.raises(CorruptRecordError):
        converted(data, magic)


def test_the_limit(way: None) -> None:
    data = encode_batch([(TIME, None, bytes(1_000_000), ())], codec=GZIP)
    with pytest.raises(DecompressedTooLargeError):
        converted(data, 1, max_bytes=100_000)
    old = encode_messages([Record(0, TIME, None, bytes(1_000_000))], 1, codec=GZIP)
    with pytest.raises(DecompressedTooLargeError):
        converted(old, 0, max_bytes=100_000)


def test_pauses() -> None:
    pauses: list[int] = []
    with in_python():
        for codec in (NONE, GZIP):
            pauses.clear()
            converted(batch(5000, codec=codec), 1, pause=partial(pauses.append, 1))
            assert len(pauses) == 5


def test_what_is_old_enough_stays(way: None) -> None:
    records = [Record(n, TIME, b"k", b"v") for n in range(3)]
    for codec in (NONE, GZIP, LZ4):
        for magic in MAGICS:
            data = encode_messages(records, magic, codec=codec)
            assert converted(data, 1, 2) == data
            if magic == 0:
                assert converted(data, 0, 2) == data
    assert decode_set(converted(encode_messages(records, 1), 0, 1)) == [
        record._replace(timestamp=-1) for record in records[1:]
    ]


def test_large_values(way: None) -> None:
    data = encode_batch([(TIME, b"k", bytes(5000), ())] * 70)
    assert len(decode_set(converted(data, 1))) == 70
    assert sum(1 for _ in encode_message_columns(decode_columns(data), 1)) == 1
    assert read_any_header(converted(data, 1)).size == 34 + 5001


def found_by(data: bytes, magic: int, first_offset: int) -> tuple[bytes, type[Exception] | None]:
    """What is converted, and the error that ends it."""
    pieces: list[bytes] = []
    try:
        batches = list(iter_headers(data))
        pieces.extend(down_convert(memoryview(data), batches, magic, first_offset, max_bytes=1 << 20))
    except (CorruptRecordError, UnconvertibleError) as error:
        return b"".join(pieces), type(error)
    return b"".join(pieces), None


def test_batches_whose_offsets_go_back(way: None) -> None:
    """Offsets are outside the checksum, so damaged ones reach the conversion."""
    assert [each.offset for each in decode_set(converted(batch(2, 900) + batch(2, 46), 1, 50))] == [900, 901]


@need_compiled
def test_damaged_batches_are_the_same_both_ways() -> None:
    """Whatever is in a batch, the compiled module and Python convert and refuse the same."""
    chance = random.Random(20_170_628)
    results: Counter[object] = Counter()
    tries = depth.inputs() // 20
    for _ in range(tries):
        data = b""
        base = 0
        for _ in range(chance.randint(1, 3)):
            base += chance.randrange(50)
            count = chance.choice((1, 2, 5, 40))
            wrong = chance.choice((0, 0, 0, 0.02, 0.2))
            body = b"".join(bad_batches.record(chance, index, wrong) for index in range(count))
            header = read_header(batch(1, base))._replace(
                attributes=chance.choice((0, 0, 0, 8, GZIP, LZ4, CONTROL, 0x50)),
                record_count=count + chance.choice((0, 0, 0, 0, 0, 1, -1)),
                last_offset_delta=count,
            )
            data += finish_batch(header, bytearray(61) + body)
            base += count
        if chance.random() < 0.05:
            at = chance.randrange(len(data))
            data = data[:at] + chance.randbytes(1) + data[at + 1 :]
        magic, first = chance.choice(MAGICS), chance.choice((0, 0, 3, 50))
        compiled = found_by(data, magic, first)
        with in_python():
            assert found_by(data, magic, first) == compiled
        results[compiled[1]] += 1
    assert results[None] > tries // 4
    assert results[CorruptRecordError] > tries // 4


@need_compiled
def test_arguments_of_the_compiled_module() -> None:
    from ottla_protocol.records import _records

    for wrong in ((b"x", 2, 1, 0), (b"x", -1, 1, 0), (b"x", 0, 2, 0), (b"x", 0, -1, 0)):
        with pytest.raises(ValueError, match="plain"):
            _records.plain_batches(*wrong)
    with pytest.raises(ValueError, match="body"):
        _records.body_as_messages(b"", 0, 0, 0, 0, False, 2, False)
    with pytest.raises(ValueError, match="records"):
        _records.messages_as_records(b"", 2, 0)
    assert _records.plain_batches(b"", 0, 1, 0) == (b"", 0)
    # Offsets and timestamps at the end of 64 bits.
    last = bytes(encode_batch([(TIME, None, b"v", ())], base_offset=2**63 - 1))
    assert _records.plain_batches(last, 0, 1, 0) == (b"", 0)
    body = bytes(encode_batch([(0, None, b"v", ()), (2, None, b"v", ())]))[61:]
    assert _records.body_as_messages(body, 2, 0, 2**63 - 2, 0, False, 1, False) is None
