"""A batch that is decoded in pieces gives the same records as one that is decoded whole."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.consumer.chunks import batch, buffer, chunk, partition, values

from ottla_client.consumer import records as reading
from ottla_client.consumer.rows import to_records
from ottla_client.errors import CorruptBatchError, DeserializationError
from ottla_client.requests import large_batch
from ottla_protocol.records.batch import HEADER_SIZE, read_header
from ottla_protocol.records.compression import ZSTD
from ottla_protocol.records.record import (
    Record,
    decode_records,
    encode_batch,
    finish_batch,
    rebuild_batch,
)

PIECE = 10


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_batch, "PIECE_RECORDS", PIECE)
    monkeypatch.setattr(reading, "MOST_AT_ONCE", PIECE)
    monkeypatch.setattr(reading, "RUN_BYTES", 200)


def _batch(chance: random.Random, base: int, count: int) -> tuple[bytes, list[Record]]:
    """A batch from which compaction may have removed some records, and the records."""
    rows = [
        (
            1_000 + chance.choice([0, each]),
            chance.choice([None, b"k" * chance.randrange(4)]),
            chance.choice([None, b"v" * chance.choice([1, 30, 150, 500])]),
            (("h", b"x"),) if chance.random() < 0.1 else (),
        )
        for each in range(count)
    ]
    whole = encode_batch(
        rows, base_offset=base, codec=chance.randrange(5), log_append_time=chance.random() < 0.3
    )
    records = decode_records(whole)
    if chance.random() < 0.5:
        kept = [each for each in records if chance.random() < 0.7] or records[:1]
        whole = rebuild_batch(read_header(whole), kept)
    return bytes(whole), decode_records(whole)


@given(st.randoms(use_true_random=False))
def test_the_records_are_the_same(chance: random.Random) -> None:
    parts, expected, base = [], [], 0
    for _ in range(chance.randrange(1, 5)):
        count = chance.choice([1, PIECE, PIECE + 1, 5 * PIECE])
        sent, records = _batch(chance, base, count)
        parts.append(sent)
        expected += records
        base += count
    offset = chance.randrange(base)
    state = partition(position=offset)
    held = buffer()
    held.add(chunk(state, *parts, offset=offset))
    due = [tuple(each) for each in expected if each.offset >= offset]
    while state.position is not None and state.position < base:
        how = chance.randrange(4)
        count = chance.choice([1, 3, PIECE, 100])
        found: list[Any] = []
        if how == 0:
            for part in held.take_parts(count):
                rows = part.columns
                fields = zip(rows.offsets, rows.timestamps, rows.keys, rows.values, rows.headers, strict=True)
                found += list(fields)[part.start : part.stop]
        elif how == 1 and (run := held.iterate()) is not None:
            found = [each[2:7] for _, each in zip(range(count), run, strict=False)]
            held.sync()
        elif how == 2:
            offset = min(base - 1, state.position + chance.randrange(4))
            if held.skip_to(state, offset):
                due = [each for each in due if each[0] >= offset]
        else:
            found = [each[2:7] for each in to_records(held.take(count))]
        assert found == due[: len(found)]
        del due[: len(found)]
    assert not due


def test_no_more_than_a_piece_is_decoded_at_once() -> None:
    held = buffer()
    held.add(chunk(partition(), batch(0, 95)))
    run = held.iterate()
    assert run is not None
    assert len(list(run)) == PIECE
    assert values(held.take(999)) == list(range(PIECE, 95))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each piece had that was decoded."""
    counts: list[int] = []
    decode = large_batch.decode_pieces

    def counting(pieces: Any, first: Any, **options: Any) -> Any:
        counts.append(pieces[0][1].record_count)
        return decode(pieces, first, **options)

    monkeypatch.setattr(large_batch, "decode_pieces", counting)
    return counts


@pytest.mark.parametrize("step", [1, 3], ids=["whole", "compacted"])
def test_pieces_before_the_position_are_not_decoded(decoded: list[int], step: int) -> None:
    """All of them were, in one turn of the event loop."""
    whole = batch(0, 500)
    kept = [each for each in decode_records(whole) if not each.offset % step]
    state = partition(position=301)
    held = buffer()
    held.add(chunk(state, bytes(rebuild_batch(read_header(whole), kept)), offset=301))
    due = [each.offset for each in kept]
    assert values(held.take(1)) == [next(each for each in due if each >= 301)]
    assert decoded == [PIECE]
    assert held.skip_to(state, 482)
    assert values(held.take(99)) == [each for each in due if each >= 482]
    assert len(decoded) <= 4


def test_nothing_is_decoded_of_a_batch_that_is_passed(decoded: list[int]) -> None:
    state = partition()
    held = buffer()
    held.add(chunk(state, batch(0, 95), batch(95, 3)))
    assert values(held.take(PIECE)) == list(range(PIECE))
    assert held.skip_to(state, 95)
    assert values(held.take(99)) == [95, 96, 97]
    assert decoded == [PIECE]


def test_a_record_behind_the_last_offset() -> None:
    whole = batch(0, 95)
    bad = bytes(finish_batch(read_header(whole)._replace(last_offset_delta=40), bytearray(whole)))
    held = buffer()
    held.add(chunk(partition(), bad))
    assert values(held.take(99)) == list(range(40))
    with pytest.raises(CorruptBatchError, match="record 49 comes behind the last offset 40"):
        held.take(99)


def test_records_longer_than_a_piece() -> None:
    rows = [(1_000, None, bytes(size), ()) for size in (1_000, 1, 5_000)]
    held = buffer()
    held.add(chunk(partition(), bytes(encode_batch(rows, codec=ZSTD))))
    assert [len(record.value) for record in to_records(held.take(9))] == [1_000, 1, 5_000]


def test_a_deserializer_that_fails_in_a_later_piece() -> None:
    def picky(value: bytes) -> int:
        if value == b"25":
            raise ValueError
        return int(value)

    state = partition()
    held = buffer(value_deserializer=picky)
    held.add(chunk(state, batch(0, 40)))
    assert [record.value for record in to_records(held.take(99))] == list(range(25))
    for _ in range(2):
        with pytest.raises(DeserializationError) as caught:
            held.take(99)
        assert caught.value.offset == 25
    assert held.skip_to(state, 26)
    assert [record.value for record in to_records(held.take(99))] == list(range(26, 40))


def test_searched_batches() -> None:
    held = buffer()
    held.add(chunk(partition(), batch(0, 30), batch(30, 40), batch(70, 20)))
    parts = held.take_parts(999, b"55")
    assert [offset for part in parts for offset in part.columns.offsets] == list(range(30, 70))
    assert held.left_out == 50


@pytest.mark.parametrize(
    ("count", "offsets", "why"),
    [
        (40, [*range(20), *range(15, 35)], "record 15 comes behind record 19"),
        (41, range(40), "1 records of the batch are missing"),
        (39, range(40), "bytes are left behind the batch's records"),
    ],
)
def test_a_batch_that_turns_out_to_be_corrupt(count: int, offsets: Any, why: str) -> None:
    sound = encode_batch([(1_000, None, b"v" * 9, ())] * 40)
    records = [
        each._replace(offset=offset) for each, offset in zip(decode_records(sound), offsets, strict=True)
    ]
    header = read_header(sound)
    rebuilt = rebuild_batch(header, sorted(records))
    body = bytearray(HEADER_SIZE)
    for each in records:
        body += rebuild_batch(header._replace(last_offset_delta=50), [each])[HEADER_SIZE:]
    bad = bytes(finish_batch(read_header(rebuilt)._replace(record_count=count), body))
    state = partition()
    held = buffer()
    held.add(chunk(state, bad))
    good = to_records(held.take(99))
    assert good
    with pytest.raises(CorruptBatchError, match=why):
        held.take(99)
    assert state.position == good[-1].offset + 1
