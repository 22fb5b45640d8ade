"""The map of keys: exact, bounded, and no larger than it has to be; and both of them agree."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_broker.log.cleaner.offset_map import (
    END,
    ENTRY_BYTES,
    FULL,
    OTHER,
    Filtered,
    KeyMap,
    OffsetMap,
    make_map,
    prime_at_most,
)
from ottla_broker.log.cleaner.records import Choice
from ottla_protocol.compiled import load_engine
from ottla_protocol.records.batch import HEADER_SIZE, CorruptRecordError, read_header, write_crc
from ottla_protocol.records.record import encode_batch

from .ways import WAYS, cleaning

SECRET = Random(5).randbytes(16)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    with cleaning(request.param):
        yield request.param


def size_of(offsets: KeyMap) -> int:
    """Bytes that the map takes."""
    if isinstance(offsets, OffsetMap):
        return sum(len(table._words) * 8 for table in offsets._tables)
    slots: int = offsets.slots  # type: ignore[attr-defined]
    return slots * ENTRY_BYTES


@pytest.mark.parametrize("way", WAYS)
@given(keys=st.lists(st.binary(max_size=30), max_size=300))
def test_it_is_a_dict(way: str, keys: list[bytes]) -> None:
    with cleaning(way):
        offsets, model = make_map(1 << 20, 0.9, SECRET), dict[bytes, int]()
        for offset, key in enumerate(keys):
            assert offsets.put(key, offset)
            model[key] = offset
        assert all(offsets.get(key) == offset for key, offset in model.items())
        assert offsets.get(b"a key that is longer than any of them") == -1
        assert len(offsets) == len(model)
        assert offsets.latest_offset == len(keys) - 1


@pytest.mark.parametrize("memory", [ENTRY_BYTES * 3, 1000, 10_000, 1 << 20, 4 << 20])
def test_it_holds_as_many_keys_as_its_memory_allows(way: str, memory: int) -> None:
    offsets = make_map(memory, 0.9, SECRET)
    count = 0
    while offsets.put(b"%d" % count, count):
        count += 1
    assert 0.7 * memory * 0.9 <= (count + 1) * ENTRY_BYTES <= memory
    assert size_of(offsets) <= memory
    assert all(offsets.get(b"%d" % key) == key for key in range(count))
    assert offsets.latest_offset == count - 1


def test_a_full_map_still_takes_keys_that_it_knows(way: str) -> None:
    offsets = make_map(1000, 0.9, SECRET)
    count = 0
    while offsets.put(b"%d" % count, count):
        count += 1
    assert offsets.put(b"0", 1000)
    assert not offsets.put(b"new", 1001)
    assert offsets.get(b"0") == 1000
    assert offsets.latest_offset == 1000


def test_a_small_log_takes_a_small_map(way: str) -> None:
    offsets = make_map(128 << 20, 0.9, SECRET)
    for key in range(100):
        offsets.put(b"%d" % key, key)
    assert size_of(offsets) < 1 << 20


def test_offset_zero_is_an_offset(way: str) -> None:
    offsets = make_map(1000, 0.9, SECRET)
    offsets.put(b"", 0)
    assert offsets.get(b"") == 0


@pytest.mark.parametrize(("memory", "load_factor"), [(0, 0.9), (ENTRY_BYTES, 0.9), (ENTRY_BYTES * 3, 0.3)])
def test_a_map_without_room_for_a_key_is_refused(way: str, memory: int, load_factor: float) -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        make_map(memory, load_factor, SECRET)


def test_primes() -> None:
    assert [prime_at_most(n) for n in (2, 3, 4, 10, 65536)] == [2, 3, 3, 7, 65521]


@pytest.mark.skipif(load_engine() is None, reason="the cleaner isn't compiled here")
def test_the_hash_is_siphash() -> None:
    """Digests of some sizes, from OpenSSL: openssl mac -macopt size:16 SIPHASH."""
    from ottla_protocol.records import _records

    offsets = _records.OffsetMap(2, 2, 0.9, bytes(range(16)))
    expected = {
        0: "a3817f04ba25a8e66df67214c7550293",
        1: "da87c1d86b99af44347659119b22fc45",
        8: "3b62a9ba6258f5610f83e264f31497b4",
        15: "5493e99933b0a8117e08ec0f97cfc3d9",
        40: "df6a301e95c95dad97ae0cc8c6913bd8",
    }
    for size, digest in expected.items():
        first, second = offsets.hash(bytes(range(size)))
        assert (first.to_bytes(8, "little") + second.to_bytes(8, "little")).hex() == digest


FIELD = st.one_of(st.none(), st.binary(max_size=20), st.just(bytes(200)))
ROWS = st.lists(
    st.tuples(st.integers(-(2**40), 2**40), FIELD, FIELD, st.sampled_from([(), (("h", None),)])), max_size=8
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A batch, sound or with a few bytes of its body or its count changed, whose checksum is right."""
    rows = draw(ROWS.filter(bool))
    batch = encode_batch(rows, base_offset=draw(st.sampled_from([0, 5, 2**40])), leader_epoch=1)
    if draw(st.booleans()):
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(HEADER_SIZE - 2, len(batch) - 1))
            batch[at] = draw(st.sampled_from([0, 1, 2, 3, 127, 128, 129, 255]))
        if draw(st.booleans()):
            batch += draw(st.binary(max_size=3))
            batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        write_crc(batch, 0, len(batch))
    return bytes(batch)


def put_all(offsets: KeyMap, data: bytes, first_dirty: int) -> object:
    """What becomes of a batch's keys, one way or the other."""
    header = read_header(data)
    at, why = offsets.read_keys(data, 0, first_dirty)
    if why == OTHER and header.last_offset < first_dirty:
        return header.size
    if why == OTHER:
        try:
            why = offsets.read_body(data[HEADER_SIZE:], header.record_count, header.base_offset, first_dirty)
            at = header.size
        except CorruptRecordError:
            why = OTHER
    return "damaged" if why == OTHER else at


def chosen(offsets: KeyMap, data: bytes, goes: bool, horizon: int) -> object:
    """What stays of a batch."""
    header = read_header(data)
    body, base = data[HEADER_SIZE:], header.base_timestamp
    try:
        found = offsets.filter_body(body, header.record_count, header.base_offset, base, goes, horizon)
    except CorruptRecordError:
        return "damaged"
    return "damaged" if found is None else Choice(*found)


@pytest.mark.skipif(load_engine() is None, reason="the cleaner isn't compiled here")
@settings(max_examples=examples(100), deadline=None)
@given(
    data=st.lists(batches(), min_size=1, max_size=4),
    first_dirty=st.sampled_from([0, 2, 7, 2**40]),
    goes=st.booleans(),
    horizon=st.sampled_from([-1, 0, 1_700_000_000_000]),
)
@example(data=[bytes(encode_batch([(0, b"k", None, ())]))], first_dirty=0, goes=False, horizon=0)
def test_both_maps_do_the_same(data: list[bytes], first_dirty: int, goes: bool, horizon: int) -> None:
    compiled = make_map(1 << 16, 0.9, SECRET)
    python = OffsetMap(1 << 16)
    assert not isinstance(compiled, OffsetMap)
    for batch in data:
        if put_all(python, batch, first_dirty) == "damaged":
            # A part of the keys may have been put.
            assert put_all(compiled, batch, first_dirty) == "damaged"
            return
        assert put_all(compiled, batch, first_dirty) == len(batch)
        python.seen_up_to(read_header(batch).last_offset)
        compiled.seen_up_to(read_header(batch).last_offset)
    assert (len(compiled), compiled.latest_offset) == (len(python), python.latest_offset)
    for batch in data:
        expected = chosen(python, batch, goes, horizon)
        assert chosen(compiled, batch, goes, horizon) == expected
        found = Filtered(*compiled.filter(batch, 0, 5, 1000, -1, 4096, array("q")))
        assert found.why == (OTHER if expected == "damaged" else END)
        if isinstance(expected, Choice):
            assert (found.records_kept, found.keyless) == chosen(compiled, batch, False, 1005)[:2]  # type: ignore[index]


@pytest.mark.skipif(load_engine() is None, reason="the cleaner isn't compiled here")
def test_a_batch_that_is_cut_off_or_of_another_kind_is_left_to_the_caller() -> None:
    offsets = make_map(1 << 16, 0.9, SECRET)
    rows = [(0, b"k%d" % number, b"v", ()) for number in range(600)]
    plain = bytes(encode_batch(rows))
    for other in (
        encode_batch(rows, base_offset=600, codec=1),
        encode_batch(
            rows, base_offset=600, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
        ),
        plain[:20] + b"x" + plain[21:],
        plain[:16] + b"\x01" + plain[17:],
        plain[:16] + b"\x03" + plain[17:],
        plain[:8] + b"\xff" + plain[9:],
    ):
        assert offsets.read_keys(plain + bytes(other), 0, 0) == (len(plain), OTHER)
        assert offsets.filter(plain + bytes(other), 0, 0, 0, -1, 4096, b"")[:2] == (len(plain), OTHER)
    for size in (0, 1, 11, 12, 60, 61, len(plain) - 1):
        assert offsets.read_keys(plain + plain[:size], 0, 0) == (len(plain), END)
        assert offsets.filter(plain + plain[:size], 0, 0, 0, -1, 4096, b"")[:2] == (len(plain), END)
    with pytest.raises(ValueError, match="outside"):
        offsets.read_keys(plain, len(plain) + 1, 0)
    with pytest.raises(ValueError, match="outside"):
        offsets.filter(plain, -1, 0, 0, -1, 4096, b"")


def test_a_map_that_is_full_says_how_far_it_came(way: str) -> None:
    offsets = make_map(ENTRY_BYTES * 7, 0.9, SECRET)
    batch = bytes(encode_batch([(0, b"%d" % number, b"", ()) for number in range(20)]))
    at, why = offsets.read_keys(batch, 0, 0)
    if why == OTHER:
        why = offsets.read_body(batch[HEADER_SIZE:], 20, 0, 0)
    assert (at, why) == (0, FULL)
    assert offsets.latest_offset == len(offsets) - 1
    assert offsets.get(b"%d" % (len(offsets) - 1)) == len(offsets) - 1
