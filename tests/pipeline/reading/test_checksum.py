"""Checksums: of any pieces in any order the same, and another for whatever differs."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_pipeline.reading import Checksum
from ottla_pipeline.reading.hashing import NULL, _hash_fields

fields = st.none() | st.binary(max_size=40) | st.integers(0, 1100).map(lambda size: b"q" * size)
rows = st.lists(st.tuples(fields, fields, st.integers(0, 2**63 - 1)), max_size=20)


def table(records: list[tuple[bytes | None, bytes | None, int]]) -> pa.Table:
    keys, values, offsets = map(list, zip(*records, strict=True)) if records else ([], [], [])
    return pa.table(
        {
            "value": pa.array(values, pa.binary()),
            "offset": pa.array(offsets, pa.int64()),
            "key": pa.array(keys, pa.binary()),
        }
    )


@given(rows, st.randoms(use_true_random=False), st.integers(0, 20))
def test_pieces_in_any_order_add_up(
    records: list[tuple[bytes | None, bytes | None, int]], chance: random.Random, cut: int
) -> None:
    whole = Checksum.of(table(records))
    shuffled = list(records)
    chance.shuffle(shuffled)
    mixed = table(shuffled)
    assert Checksum.of(mixed.slice(0, cut)) + Checksum.of(mixed.slice(cut)) == whole
    assert whole.count == len(records)


def test_what_differs_is_told_apart() -> None:
    variants: list[tuple[bytes | None, bytes | None, int]] = [
        (b"k", b"v", 1),
        (b"k", b"v", 2),
        (b"v", b"k", 1),
        (None, b"v", 1),
        (b"", b"v", 1),
        (b"k", None, 1),
        (b"k", b"", 1),
        (b"k", b"v\0", 1),
        (b"k", b"w", 1),
        (b"k", b"v" + bytes(2000), 1),
        (b"k", b"v" + bytes(2001), 1),
        (None, None, 1),
    ]
    assert len({Checksum.of(table([variant])).total for variant in variants}) == len(variants)


def test_words_change_places() -> None:
    one, other = b"a" * 8 + b"b" * 8, b"b" * 8 + b"a" * 8
    assert Checksum.of(table([(None, one, 1)])) != Checksum.of(table([(None, other, 1)]))


def test_it_never_changes() -> None:
    """Tables keep checksums for years, so the hash must never change."""
    records = [(b"key", b"value " * size, size) for size in range(300)] + [(None, None, 2**62)]
    assert Checksum.of(table(records)) == Checksum(301, 0xAE6B04E100BB4EBF)
    assert NULL == 0x6A09E667F3BCC909


@given(st.lists(fields, max_size=10))
def test_numpy_and_the_compiled_loop_agree(values: list[bytes | None]) -> None:
    module = pytest.importorskip("ottla_protocol.records._records")
    import numpy as np

    data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    edges = np.cumsum([0, *(len(value or b"") for value in values)]).astype(np.int32)
    one, other = np.empty(len(values), np.uint64), np.empty(len(values), np.uint64)
    module.hash_fields(data, edges, one)
    _hash_fields(data, edges, other)
    assert one.tolist() == other.tolist()
