"""The map of keys: exact, bounded, and no larger than it has to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.log.cleaner.offset_map import ENTRY_BYTES, OffsetMap, prime_at_most


@given(st.lists(st.binary(max_size=30), max_size=300))
def test_it_is_a_dict(keys: list[bytes]) -> None:
    offsets, model = OffsetMap(1 << 20), dict[bytes, int]()
    for offset, key in enumerate(keys):
        assert offsets.put(key, offset)
        model[key] = offset
    assert all(offsets.get(key) == offset for key, offset in model.items())
    assert offsets.get(b"a key that is longer than any of them") == -1
    assert len(offsets) == len(model)
    assert offsets.latest_offset == len(keys) - 1


@pytest.mark.parametrize("memory", [ENTRY_BYTES * 3, 1000, 10_000, 1 << 20, 4 << 20])
def test_it_holds_as_many_keys_as_its_memory_allows(memory: int) -> None:
    offsets = OffsetMap(memory)
    count = 0
    while offsets.put(b"%d" % count, count):
        count += 1
    assert 0.7 * memory * 0.9 <= (count + 1) * ENTRY_BYTES <= memory
    assert sum(len(table._words) * 8 for table in offsets._tables) <= memory
    assert all(offsets.get(b"%d" % key) == key for key in range(count))
    assert offsets.latest_offset == count - 1


def test_a_full_map_still_takes_keys_that_it_knows() -> None:
    offsets = OffsetMap(1000)
    count = 0
    while offsets.put(b"%d" % count, count):
        count += 1
    assert offsets.put(b"0", 1000)
    assert not offsets.put(b"new", 1001)
    assert offsets.get(b"0") == 1000
    assert offsets.latest_offset == 1000


def test_a_small_log_takes_a_small_map() -> None:
    offsets = OffsetMap(128 << 20)
    for key in range(100):
        offsets.put(b"%d" % key, key)
    assert sum(len(table._words) * 8 for table in offsets._tables) < 1 << 20


def test_offset_zero_is_an_offset() -> None:
    offsets = OffsetMap(1000)
    offsets.put(b"", 0)
    assert offsets.get(b"") == 0


@pytest.mark.parametrize(("memory", "load_factor"), [(0, 0.9), (ENTRY_BYTES, 0.9), (ENTRY_BYTES * 3, 0.3)])
def test_a_map_without_room_for_a_key_is_refused(memory: int, load_factor: float) -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(memory, load_factor)


def test_primes() -> None:
    assert [prime_at_most(n) for n in (2, 3, 4, 10, 65536)] == [2, 3, 3, 7, 65521]
