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
from ottla_protocol.records.batch import BatchHeader, CorruptRecordError, read_header
from ottla_protocol.records.compression import DecompressedTooLargeError, compress
from ottla_protocol.records.record import Record, decode_data, decode_records, encode_batch
from ottla_protocol.records.repack import RepackedTooLargeError, repack
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
from ottla_protocol.records.walk import PythonRenumber, PythonWalk, scan_compressed

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
            body = renumbered(body)
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


def pieces(chance: random.Random, body: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The body in pieces of all sizes, some of them empty, each within other bytes."""
    at = 0
    longest = chance.choice((1, 3, 40, 400))
    while at < len(body):
        size = min(chance.randrange(longest + 1), len(body) - at)
        yield b"\x80" * 2 + body[at : at + size] + b"\x01", 2, 2 + size
        at += size


def meaning(found: Scan) -> Scan:
    """The fields that mean something."""
    return found if found.reason == FINE else Scan(*found[:3], 0, 0, 0, 0, [])


def ways() -> list[Any]:
    """The walk in Python, and the compiled one where it is there."""
    return [PythonWalk] if scan_module.module is None else [PythonWalk, scan_module.module.Walk]


def test_piece_by_piece_is_as_the_whole() -> None:
    for chance, body, count, options in bodies(3, depth.inputs() // 20):
        base = chance.choice(BASES)
        whole = scan(body, 0, len(body), count, base, **options)
        fed = list(pieces(chance, body))
        walked = set()
        for way in ways():
            walk = way(0, count, base, *options.values(), False, 0, 0)
            ended = [walk.feed(*piece) for piece in fed]
            assert ended == sorted(ended, reverse=True)
            assert walk.found() is walk.newest() is None
            result = Scan(*walk.result())
            walked.add(repr((ended, meaning(result))))
        assert len(walked) == 1
        if whole.reason == FINE:
            assert result == whole
        else:
            # A record that is cut off may be found wrong in another way before its end.
            assert result.reason == whole.reason or whole.reason == CUT
            assert result.reason != FINE
            assert result[1:3] == whole[1:3]


def test_both_walks_find_the_same_record() -> None:
    found: Counter[bool] = Counter()
    for chance, body, count, options in bodies(4, depth.inputs() // 20):
        base, since = (
            chance.choice(BASES),
            (chance.choice((-1, 0, 1, 30)), chance.choice((-1, TIME, TIME + 60))),
        )
        fed = list(pieces(chance, body))
        walked = set()
        for way in ways():
            walk = way(0, count, base, *options.values(), True, *since)
            ended = [walk.feed(*piece) for piece in fed]
            walked.add(repr((ended, walk.found(), walk.newest(), meaning(Scan(*walk.result())))))
            place = walk.found()
        assert len(walked) == 1
        found[place is None] += 1
        assert place is None or (place[0] >= since[0] and place[1] >= since[1])
    assert len(found) == 2


def renumbered(body: bytes) -> bytes:
    return PythonRenumber().feed(body, 0, len(body))


@pytest.mark.skipif(not scan_module.IS_COMPILED, reason="the compiled module is missing")
def test_both_ways_renumber_alike_and_stay_within_their_data() -> None:
    assert scan_module.module is not None
    for chance, body, count, options in bodies(5, depth.inputs() // 20):
        is_fine = scan(body, 0, len(body), count, 0, **options).reason == FINE
        ways = PythonRenumber(), scan_module.module.Renumber()
        try:
            written = [
                b"".join([way.feed(*piece) for piece in pieces(chance, body)]) for way in reversed(ways)
            ]
        except ValueError:
            assert not is_fine
            continue
        assert not is_fine or written[0] == written[1] == renumbered(body)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_large_body_is_scanned_in_little_memory(codec: int) -> None:
    import resource

    values = [b"x" * 3_000_000, b"y", b"z" * 2_000_000] * 6
    body = bytes(encode_batch([(TIME, b"k", value, ()) for value in values])[61:])
    count = len(values)
    head = encode_batch([(TIME, b"k", b"", ())])[:61]
    head[22] = codec
    batch = bytes(head) + compress(codec, body)
    header = read_header(batch)._replace(record_count=count)
    del body, values
    scan_compressed(batch, header)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        found = scan_compressed(batch, header)
        assert (found.reason, found.record, found.max_timestamp) == (FINE, count, TIME)
        _, packed = repack(batch, header, codec, renumber=True, max_timestamp=TIME, max_bytes=10_000_000)
        assert packed.codec == codec
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024
    assert scan_compressed(batch, header._replace(record_count=count - 1)).reason == TRAILING
    assert scan_compressed(batch, header._replace(record_count=count + 1)).reason == CUT
    with pytest.raises(DecompressedTooLargeError):
        scan_compressed(batch, header, max_bytes=20_000_000)
    with pytest.raises(CorruptRecordError):
        scan_compressed(batch[:-9], header)
    with pytest.raises(RepackedTooLargeError):
        repack(batch, header, 0, renumber=False, max_timestamp=TIME, max_bytes=10_000_000)


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
    packed, new = repack(
        batch, header, other, renumber=True, max_timestamp=header.max_timestamp, max_bytes=1_000_000
    )
    assert read_header(packed) == new
    assert decode_records(packed) == decode_records(batch)
    assert new.codec == other
    assert new[9:] == header[9:]
