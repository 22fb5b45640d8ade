"""Scanning a batch's records: the compiled and the Python way, whole and part by part, against the decoder."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import bad_batches, depth
from tests.support.bad_batches import TIME

from ottla_protocol.records import scan as scan_module
from ottla_protocol.records import scan_stream
from ottla_protocol.records.batch import BatchHeader, CorruptRecordError, read_header
from ottla_protocol.records.compression import DecompressedTooLargeError, compress
from ottla_protocol.records.record import Record, decode_data, decode_records, encode_batch
from ottla_protocol.records.repack import pack, renumber
from ottla_protocol.records.scan import (
    CUT,
    FINE,
    INT64_MAX,
    INT64_MIN,
    MOST_REFUSED,
    NO_KEY,
    OUT_OF_RANGE,
    REASONS,
    TRAILING,
    Scan,
    scan,
    scan_in_python,
)
from ottla_protocol.records.scan_stream import scan_compressed

BASES = (0, TIME, -1, INT64_MAX - 5, INT64_MIN + 3)


def bodies(seed: int, count: int) -> Iterator[tuple[random.Random, bytes, int, dict[str, Any]]]:
    """Bodies, most of them damaged, how many records they are said to have, and options of a scan."""
    chance = random.Random(seed)
    for _ in range(count):
        records = chance.choice((1, 2, 3, 40))
        wrong = chance.choice((0, 0, 0.01, 0.1, 0.4))
        if chance.random() < 0.2:
            # All alike, as the fast way in Python wants them.
            stamp = chance.choice((TIME, TIME + 5))
            body = bytes(encode_batch([(stamp, b"k", b"v" * 9, ())] * records)[61:])
        else:
            body = b"".join(bad_batches.record(chance, index, wrong) for index in range(records))
        if chance.random() < 0.2:
            body = body[: chance.randrange(len(body) + 1)]
        options = {
            "earliest": chance.choice((INT64_MIN, TIME)),
            "latest": chance.choice((INT64_MAX, TIME + 50)),
            "keys": chance.random() < 0.5,
        }
        yield chance, body, max(0, records + chance.choice((0, 0, 0, 0, 1, -1))), options


@pytest.mark.skipif(not scan_module.IS_COMPILED, reason="the compiled module is missing")
def test_the_compiled_scan_is_the_one_in_python() -> None:
    found: Counter[int] = Counter()
    for chance, body, count, options in bodies(1, depth.inputs() // 8):
        base, first = chance.choice(BASES), chance.choice((0, 0, 3))
        data = bytes(chance.randrange(3)) + body
        at = len(data) - len(body)
        compiled = scan(data, at, len(data), count, base, first=first, **options)
        assert compiled == scan_in_python(data, at, len(data), count, base, first=first, **options)
        found[compiled.reason] += 1
    assert set(found) == {FINE, *REASONS}


def test_what_a_scan_accepts_can_be_decoded() -> None:
    found: Counter[bool] = Counter()
    for chance, body, count, options in bodies(2, depth.inputs() // 20):
        base = chance.choice(BASES)
        result = scan(body, 0, len(body), count, base, **options)
        header = BatchHeader(0, 0, 0, 2, 0, 0, count - 1, base, 0, -1, -1, -1, count)
        found[result.reason == FINE] += 1
        if result.reason == FINE and result.renumber:
            body = renumber(body, count)
            again = scan(body, 0, len(body), count, base, **options)
            assert again == result._replace(renumber=0, position=len(body))
        elif count == 0:
            continue
        try:
            records = decode_data(body, header)
        except CorruptRecordError:
            assert result.reason != FINE
            continue
        assert result.reason == FINE
        assert [record.offset for record in records] == list(range(count))
        assert result.max_timestamp == max(-1, *(record.timestamp for record in records), -1)
        assert_refused(result, records, options)
    assert min(found.values()) > depth.inputs() // 100


def assert_refused(result: Scan, records: list[Record], options: dict[str, Any]) -> None:
    expected = []
    for index, record in enumerate(records):
        if options["keys"] and record.key is None:
            expected.append((index, record.timestamp, NO_KEY))
        elif record.timestamp != -1 and not options["earliest"] <= record.timestamp <= options["latest"]:
            expected.append((index, record.timestamp, OUT_OF_RANGE))
    assert result.refused == expected
    assert result.without_key == sum(why == NO_KEY for _, _, why in expected)
    assert result.out_of_range == sum(why == OUT_OF_RANGE for _, _, why in expected)


def test_part_by_part_is_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []
    monkeypatch.setattr(scan_stream, "decompress_parts", lambda *_, for_java: iter(pieces))
    for chance, body, count, options in bodies(3, depth.inputs() // 20):
        if count == 0:
            continue
        base = chance.choice(BASES)
        monkeypatch.setattr(scan_stream, "PART_BYTES", chance.choice((10, 11, 13, 50, 200)))
        pieces[:] = []
        at = 0
        while at < len(body):
            step = chance.randrange(1, 40)
            pieces.append(body[at : at + step])
            at += step
        whole = scan(body, 0, len(body), count, base, **options)
        parts = scan_compressed(1, b"", count, base, **options)
        if whole.reason == FINE:
            assert parts == whole
        else:
            # A record that is cut off may be found wrong in another way before its end.
            assert parts.reason == whole.reason or whole.reason == CUT
            assert parts.reason != FINE
            assert parts[1:3] == whole[1:3]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_large_body_is_scanned_in_little_memory(codec: int) -> None:
    import resource

    values = [b"x" * 3_000_000, b"y", b"z" * 2_000_000] * 6
    body = bytes(encode_batch([(TIME, b"k", value, ()) for value in values])[61:])
    packed = compress(codec, body)
    count = len(values)
    del body, values
    scan_compressed(codec, packed, count, TIME)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        found = scan_compressed(codec, packed, count, TIME)
        assert (found.reason, found.record, found.max_timestamp) == (FINE, count, TIME)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024
    assert scan_compressed(codec, packed, count - 1, TIME).reason == TRAILING
    assert scan_compressed(codec, packed, count + 1, TIME).reason == CUT
    with pytest.raises(DecompressedTooLargeError):
        scan_compressed(codec, packed, count, TIME, max_bytes=20_000_000)
    with pytest.raises(CorruptRecordError):
        scan_compressed(codec, packed[:-9], count, TIME)


@pytest.mark.parametrize("way", [scan, scan_in_python])
def test_only_some_refused_records_are_listed(way: Any) -> None:
    batch = encode_batch([(TIME + number, None, b"v", ()) for number in range(5000)])
    found = way(batch, 61, len(batch), 5000, TIME, keys=True)
    assert (found.reason, found.without_key, len(found.refused)) == (FINE, 5000, MOST_REFUSED)
    found = way(batch, 61, len(batch), 5000, TIME, latest=TIME + 9)
    assert (found.out_of_range, found.refused[0]) == (4990, (10, TIME + 10, OUT_OF_RANGE))


@pytest.mark.parametrize("way", [scan, scan_in_python])
def test_a_record_without_a_timestamp_is_in_range(way: Any) -> None:
    batch = encode_batch([(-1, b"k", b"v", ())])
    found = way(batch, 61, len(batch), 1, -1, earliest=5, latest=9)
    assert (found.max_timestamp, found.refused) == (-1, [])


@pytest.mark.skipif(not scan_module.IS_COMPILED, reason="the compiled module is missing")
def test_the_compiled_scan_stays_within_its_data() -> None:
    for start, end in ((-1, 3), (2, 1), (0, 11), (2**62, 2**63 - 1)):
        with pytest.raises((ValueError, OverflowError)):
            scan(b"0123456789", start, end, 1, 0)
    with pytest.raises(BufferError):
        scan(memoryview(b"0123456789")[::2], 0, 3, 1, 0)
    assert scan(b"", 0, 0, 0, 0) == Scan(FINE, 0, 0, -1, 0, 0, 0, [])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**40),
            st.none() | st.binary(max_size=5),
            st.none() | st.binary(max_size=200),
            st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(range(5)),
    st.sampled_from(range(5)),
)
def test_repacked_batches_have_the_same_records(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], codec: int, other: int
) -> None:
    batch = encode_batch(rows, codec=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    header = read_header(batch)
    body = encode_batch(rows)[61:]
    packed, new = pack(header, renumber(bytes(body), len(rows)), other, max_timestamp=header.max_timestamp)
    assert read_header(packed) == new
    assert decode_records(packed) == decode_records(batch)
    assert new.codec == other
    assert new[9:] == header[9:]
