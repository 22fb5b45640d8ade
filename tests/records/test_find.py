"""Records that are found by their timestamps, a window of a batch at a time."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_protocol.lag import Look
from ottla_protocol.records import walk
from ottla_protocol.records.batch import CorruptRecordError, read_header
from ottla_protocol.records.find import find_newest, find_since
from ottla_protocol.records.record import decode_records, encode_batch, rebuild_batch

NOW = 1_700_000_000_000


def ended(search: Any) -> tuple[int, tuple[int, int] | None]:
    """How many steps it took, and what was found."""
    steps = 0
    while True:
        try:
            next(search)
        except StopIteration as end:
            return steps, end.value
        steps += 1


@pytest.mark.parametrize("compiled", [True, False])
@settings(max_examples=examples(60))
@given(
    stamps=st.lists(st.sampled_from([-1, 0, NOW, NOW + 1, NOW + 200, NOW + 70_000]), min_size=1, max_size=40),
    sizes=st.lists(st.sampled_from([0, 1, 30, 200]), min_size=1, max_size=5),
    codec=st.integers(0, 4),
    by_append=st.booleans(),
    wanted=st.sampled_from([-5, 0, 1, NOW, NOW + 1, NOW + 100, NOW + 80_000]),
    start=st.integers(95, 145),
)
def test_as_if_all_were_decoded(
    compiled: bool,
    stamps: list[int],
    sizes: list[int],
    codec: int,
    by_append: bool,
    wanted: int,
    start: int,
) -> None:
    records = [(stamp, b"k", bytes(sizes[n % len(sizes)]), ()) for n, stamp in enumerate(stamps)]
    batch = encode_batch(records, codec=codec, base_offset=100, log_append_time=by_append)
    header = read_header(batch)
    decoded = [(each.offset, each.timestamp) for each in decode_records(batch) if each.offset >= start]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "PIECE_BYTES", 64)
        if not compiled:
            patch.setattr(walk, "module", None)
        _, since = ended(find_since(batch, header, wanted, start))
        _, newest = ended(find_newest(batch, header, start))
    assert since == next((each for each in decoded if each[1] >= wanted), None)
    assert newest == max(decoded, key=lambda each: each[1], default=None)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("kept", [(0,), (99,), (0, 1, 2, 50, 99), range(10), ()])
def test_what_is_left_in_a_compacted_batch(
    compiled: bool, codec: int, kept: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = encode_batch([(NOW, None, b"v", ())] * 100, codec=codec, base_offset=100)
    records = decode_records(batch)
    rest = bytes(rebuild_batch(read_header(batch), [records[each] for each in kept]))
    behind = bytes(encode_batch([(NOW + 5, None, b"v", ())], base_offset=200))
    if not compiled:
        monkeypatch.setattr(walk, "module", None)
    for start in (100, 101, 150, 151, 199):
        look = Look(start)
        look.add(rest + behind)
        left = [100 + each for each in kept if 100 + each >= start] + [200]
        assert (look.records, look.next, look.first_offset) == (
            len(left),
            201,
            200 if len(left) == 1 else start,
        )


def test_a_large_compacted_batch_is_not_counted_to_its_end() -> None:
    batch = encode_batch([(NOW, None, bytes(1000), ())] * 5_000, codec=1)
    records = decode_records(batch)
    look = Look(4_000)
    look.add(bytes(rebuild_batch(read_header(batch), [*records[:10], *records[-3_000:]])))
    assert look.records == 1_000


def test_large_batches_take_many_steps() -> None:
    batch = encode_batch([(NOW + n, None, bytes(100), ()) for n in range(20_000)], codec=1)
    header = read_header(batch)
    steps, found = ended(find_since(batch, header, NOW + 19_000, 0))
    assert found == (19_000, NOW + 19_000)
    assert steps > 20


def test_a_batch_that_ends_early() -> None:
    batch = encode_batch([(NOW, None, b"v", ())])
    struct.pack_into(">i", batch, 57, 3)
    with pytest.raises(CorruptRecordError, match="record 1 of the batch can't be read"):
        ended(find_since(batch, read_header(batch), NOW + 1, 0))
