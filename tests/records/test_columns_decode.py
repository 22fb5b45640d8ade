"""Columns of a batch: the same records, and the same refusals, as when they are read one by one."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depth import inputs

from ottla_protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    CorruptRecordError,
    read_header,
    set_log_append_time,
    write_header,
)
from ottla_protocol.records.columns import RecordColumns, decode_batches, decode_columns
from ottla_protocol.records.columns import decode as module
from ottla_protocol.records.record import Record, decode_records, encode_batch, encode_varint
from ottla_protocol.records.runs import find_runs

TIME = 1_700_000_000_000
MAX_BYTES = 1 << 20

sizes = st.sampled_from((0, 1, 2, 62, 63, 64, 65, 8190, 8191, 8192, 8193)) | st.integers(0, 200)
payloads = st.none() | sizes.map(lambda size: b"p" * size) | st.binary(max_size=40)
deltas = st.sampled_from((0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**31, -(2**31), 2**41))
timestamps = (deltas | st.integers(-10_000, 10_000)).map(lambda delta: TIME + delta)
headers = st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=4).map(tuple)
rows = st.tuples(timestamps, payloads, payloads, st.just(()) | st.just(()) | headers)


@pytest.fixture(autouse=True)
def numpy_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are short here, and how long ones are read is what is in question."""
    monkeypatch.setattr(module, "LEAST_FOR_NUMPY", 1)
    monkeypatch.setattr(module, "LEAST_FOR_COLUMNS", 1)


def records_of(columns: RecordColumns) -> list[Record]:
    lists = (columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers)
    assert all(type(column) is list and len(column) == columns.count for column in lists)
    return [Record(*row) for row in zip(*lists, strict=True)]


def check(data: bytes | bytearray, position: int = 0) -> str:
    """Read ``data`` in all ways; what came of it where there are no runs."""
    refusal: CorruptRecordError | None = None
    expected: list[Record] = []
    try:
        expected = decode_records(data, position, max_bytes=MAX_BYTES)
    except CorruptRecordError as error:
        refusal = error
    come = ""
    for finding in (find_runs, lambda *_: None):
        with mock.patch.object(module, "find_runs", finding):
            if refusal:
                with pytest.raises(type(refusal), match=f"^{re.escape(str(refusal))}$"):
                    decode_columns(data, position, max_bytes=MAX_BYTES)
                come = "corrupt"
                continue
            columns = decode_columns(data, position, max_bytes=MAX_BYTES)
        found = records_of(columns)
        assert found == expected
        assert [list(map(type, record)) for record in found] == [
            list(map(type, record)) for record in expected
        ]
        come = "one by one"
        if columns.spans is not None:
            come = "by numpy"
            assert records_of(RecordColumns(columns.header, columns.spans)) == expected
    return come


def runs_in(data: bytes | bytearray) -> int:
    """How many runs a batch is read in, 0 if in another way; as all ways read it."""
    check(data)
    header = read_header(data)
    return len(find_runs(bytes(data), HEADER_SIZE, len(data), header) or ())


@settings(deadline=None)
@given(st.lists(rows, min_size=1, max_size=12), st.integers(1, 20), st.sampled_from(range(5)))
def test_the_same_records(few: list[Any], times: int, codec: int) -> None:
    batch = encode_batch(few * times, base_offset=7, codec=codec)
    assert check(b"..." + batch + b"...", 3) == "by numpy"
    set_log_append_time(batch, 0, read_header(batch), TIME + 5)
    assert check(batch) == "by numpy"


@pytest.mark.parametrize(
    "value_sizes",
    [[100], [100, 101], [0], [53, 54, 55, 56], [8180, 8190], [1] * 40 + [200], [70_000]],
    ids=lambda value_sizes: str(value_sizes[:4]),
)
def test_runs_of_one_size(value_sizes: list[int]) -> None:
    """Runs end where the offset's varint grows, and where another size comes in."""
    count = 200 if value_sizes[0] > 8000 else 9000
    records = [(TIME + i // 3, None, b"v" * value_sizes[i % len(value_sizes)], ()) for i in range(count)]
    assert check(encode_batch(records)) == "by numpy"


KEYS = (None, b"", b"key")
VALUES = (None, b"", b"v" * 100)


@pytest.mark.parametrize(
    ("records", "key", "value"),
    [
        *itertools.product((1, 31, 32, 64, 65, 1024 + 64), KEYS, VALUES),
        # Long batches with each key and each value.
        *((8192 if key else 8193, key, value) for key, value in zip(KEYS, VALUES, strict=True)),
        *((8193 if key else 8192, key, value) for key, value in zip(KEYS, VALUES, strict=True)),
        (17_000, b"key", None),
    ],
)
def test_similar_records_are_read_in_runs(records: int, key: bytes | None, value: bytes | None) -> None:
    """A run ends where the offset's number gets another byte, and at every 8192."""
    batch = encode_batch([(TIME + i // 300, key, value, ()) for i in range(records)], base_offset=5)
    assert 1 <= runs_in(batch) <= 6
    set_log_append_time(batch, 0, read_header(batch), TIME + 5)
    assert 1 <= runs_in(batch) <= 6


def test_different_records_are_not_read_in_runs() -> None:
    rows: list[Any] = [(TIME, b"k", b"v" * 20, ())] * 400
    odd: list[Any] = [
        (TIME, b"k", b"v" * 21, ()),
        (TIME, b"kk", b"v" * 19, ()),
        (TIME, None, b"v" * 21, ()),
        (TIME, b"k", b"v" * 15, (("h", b""),)),
        (TIME + 64, b"k", b"v" * 19, ()),
    ]
    for other in odd:
        assert not runs_in(encode_batch([*rows[:150], other, *rows[151:]]))
        assert (runs_in(encode_batch([*rows[:399], other])) > 0) is not bool(other[3])
    assert not runs_in(encode_batch([(TIME + i % 2, None, b"v", ()) for i in range(400)]))
    assert not runs_in(encode_batch([(TIME - i // 3, None, b"v", ()) for i in range(400)]))


@given(st.integers(0, 300), st.integers(0, 20), st.integers(0, 255), st.sampled_from((70, 300)))
def test_runs_with_a_changed_byte(record: int, place: int, byte: int, records: int) -> None:
    """Whatever byte is wrong in a record's numbers, nothing is read that others would refuse or read otherwise."""
    batch = encode_batch([(TIME + i // 100, b"key", b"v" * 100, ()) for i in range(records)])
    at = HEADER_SIZE + min(record, records - 1) * 114 + place
    if at < len(batch):
        batch[at] = byte
    check(batch)


def test_a_run_that_ends_in_the_middle() -> None:
    values = [b"v" * 20] * 500
    for place in (15, 16, 17, 63, 64, 65, 80, 300, 498, 499):
        varied = [*values[:place], b"other", *values[place:]]
        assert check(encode_batch([(TIME, None, value, ()) for value in varied])) == "by numpy"


def test_compacted_batches_and_offsets_of_four_bytes() -> None:
    header = read_header(encode_batch([(TIME, None, b"", ())] * 3))
    bodies = [
        b"\0\0" + encode_varint(delta) + b"\x01\x02v\0" for delta in (3, 70_000, 3_000_000, 300_000_000)
    ]
    body = b"".join(encode_varint(len(each)) + each for each in bodies)
    batch = bytearray(HEADER_SIZE) + body
    write_header(batch, 0, header._replace(batch_length=len(batch) - 12, record_count=4))
    assert check(batch) == "by numpy"


def test_an_empty_batch() -> None:
    header = read_header(encode_batch([(TIME, None, b"", ())]))
    batch = bytearray(HEADER_SIZE)
    write_header(batch, 0, header._replace(batch_length=HEADER_SIZE - 12, record_count=0))
    columns = decode_columns(batch)
    assert columns.count == 0
    assert records_of(columns) == []


@pytest.mark.parametrize("base", [2**63 - 1, -(2**63), 2**62, 0])
def test_timestamps_at_the_end_of_time(base: int) -> None:
    batch = encode_batch([(base, None, b"a", ())] * 3)
    check(batch)
    for delta in (b"\x7e", b"\x7d", b"\xfe" + b"\xff" * 7 + b"\x7f", b"\xff" * 9 + b"\x01"):
        body = b"\0" + delta + b"\0\x01\x01\0"
        body = encode_varint(len(body)) + body
        broken = batch[:HEADER_SIZE] + body
        write_header(broken, 0, read_header(batch)._replace(batch_length=len(broken) - 12, record_count=1))
        check(broken)


def damaged(chance: random.Random) -> Iterator[bytearray]:
    """Batches with bytes changed, put in, taken out: many of one kind, and few of every kind."""
    kinds = [
        [(TIME, None, b"v" * 30, ())] * 150,
        [(TIME + i, b"key", b"v" * (i % 7), ()) for i in range(40)],
        [
            (TIME, b"key", b"value", ()),
            (TIME + 1, None, b"fox jumps " * 9, ()),
            (TIME - 70, b"gone", None, ()),
            (TIME + 100_000, b"", b"", ()),
            (TIME, b"h", b"x", (("trace", b"abc"), ("null", None), ("é漢", b""))),
        ],
    ]
    batches = [encode_batch(kind) for kind in kinds]
    while True:
        data = bytearray(chance.choice(batches))
        at = chance.randrange(HEADER_SIZE, len(data))
        for _ in range(chance.randint(1, 3)):
            if chance.random() < 0.5:
                at = chance.randrange(HEADER_SIZE, len(data))
            match chance.randrange(4):
                case 0:
                    data[at] ^= 1 << chance.randrange(8)
                case 1:
                    data[at] = chance.choice((0, 1, 2, 3, 126, 127, 128, 129, 255))
                case 2:
                    data[at : at + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 3))
                case 3:
                    # A number written with a byte more than it needs is the same number.
                    data[at : at + 1] = bytes((data[at] | 128, 0))
            at = min(at, len(data) - 1)
        if chance.random() < 0.2:
            data[57:61] = chance.choice((0, 1, 2, 39, 41, 149, 151, 2**31 - 1, 2**32 - 1)).to_bytes(4, "big")
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        yield data


def test_damaged_batches() -> None:
    chance = random.Random(20_240_229)
    results = [check(data) for _, data in zip(range(inputs() // 10), damaged(chance), strict=False)]
    assert results.count("corrupt") > inputs() // 40
    assert results.count("by numpy") > inputs() // 100


def test_noise() -> None:
    chance = random.Random(7)
    header = encode_batch([(TIME, None, b"", ())])[:HEADER_SIZE]
    for _ in range(inputs() // 20):
        data = header + chance.randbytes(chance.randrange(200))
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        data[22] = chance.choice((0, 0, 8, chance.randrange(256)))
        data[57:61] = chance.randrange(12).to_bytes(4, "big")
        check(data)


def test_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = encode_batch([(TIME + i, b"k", b"v", (("h", None),)) for i in range(300)])
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "ottla_protocol.records.columns.parse", raising=False)
    module._parser.cache_clear()
    try:
        assert check(batch) == "one by one"
    finally:
        module._parser.cache_clear()


def test_numpy_is_not_imported_for_few_records() -> None:
    program = """
import sys
from ottla_protocol.records.columns import decode_columns, encode_columns
assert decode_columns(encode_columns([b"v"] * 100, timestamps=0)).values == [b"v"] * 100
assert "numpy" not in sys.modules
"""
    subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, env={"PYTHONPATH": ":".join(sys.path)}
    )


def test_few_records_are_read_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_FOR_NUMPY", 20)
    assert check(encode_batch([(TIME, None, b"v", ())] * 19)) == "one by one"
    assert check(encode_batch([(TIME, None, b"v", ())] * 20)) == "by numpy"


def test_several_batches_at_once() -> None:
    chance = random.Random(3)
    values = [b"v" * 30, b"other"]
    batches = [
        encode_batch(
            [(TIME + i, None, chance.choice(values), ()) for i in range(chance.randint(1, 90))],
            base_offset=1000 * number,
            codec=chance.choice((0, 0, 4)),
        )
        for number in range(20)
    ]
    set_log_append_time(batches[7], 0, read_header(batches[7]), TIME + 5)
    header = read_header(batches[9])
    batches[9] = batches[9][:HEADER_SIZE]
    write_header(batches[9], 0, header._replace(attributes=0, batch_length=HEADER_SIZE - 12, record_count=0))
    buf = b"...".join(batches)
    places: list[tuple[int, BatchHeader]] = []
    position = 0
    for batch in batches:
        places.append((position, read_header(buf, position)))
        position += len(batch) + 3
    columns = decode_batches(buf, places)
    assert columns.spans is not None
    assert records_of(columns) == [record for place, _ in places for record in decode_records(buf, place)]

    # Records that all fit one behind another, though not into the batches that claim them.
    first, second = places[:2]
    broken = bytearray(buf)
    for (place, header), change in ((first, -1), (second, 1)):
        write_header(broken, place, header._replace(record_count=header.record_count + change))
    places[:2] = [(place, read_header(broken, place)) for place, _ in places[:2]]
    with pytest.raises(CorruptRecordError, match="left behind the batch"):
        decode_batches(broken, places)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("count", [3, 40, 300])
def test_the_largest_offset(count: int, alike: bool) -> None:
    rows = [(0, None, b"v" * (1 if alike else number % 5), ()) for number in range(count)]
    columns = decode_columns(encode_batch(rows, base_offset=7))
    assert columns.max_offset == columns.offsets[-1] == 6 + count


def test_no_records_in_any_batch() -> None:
    header = read_header(encode_batch([(TIME, None, b"", ())]))
    empty = bytearray(HEADER_SIZE)
    write_header(empty, 0, header._replace(batch_length=HEADER_SIZE - 12, record_count=0))
    assert (
        records_of(decode_batches(empty * 2, [(0, read_header(empty)), (HEADER_SIZE, read_header(empty))]))
        == []
    )
