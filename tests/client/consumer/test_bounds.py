"""Batches that are small on the wire and huge in memory: what a consumer decodes at once has bounds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.consumer.chunks import aborted, batch, buffer, chunk, marker, partition, settings

from ottla_client.consumer import buffer as holding
from ottla_client.consumer import records as reading
from ottla_client.consumer.buffer import Buffer
from ottla_client.consumer.records import RUN_BYTES
from ottla_client.consumer.rows import to_records
from ottla_client.errors import CorruptBatchError
from ottla_client.requests.large_batch import MAX_HEADERS
from ottla_console.reading import MOST_HEADERS_OF_BATCH, BoundedReader
from ottla_protocol.records.batch import HEADER_SIZE, read_header
from ottla_protocol.records.compression import ZSTD
from ottla_protocol.records.message_set import encode_messages
from ottla_protocol.records.record import Record, encode_batch, finish_batch

COMMITTED = {"isolation_level": "read_committed"}


def _with_headers(count: int, *, others: int) -> bytes:
    """A batch whose last record has so many empty headers."""
    rows = [(1_000, None, b"v", ())] * others + [(1_000, None, b"v", (("", b""),) * count)]
    return bytes(encode_batch(rows, codec=ZSTD))


@pytest.mark.parametrize("others", [0, 40, 300])
def test_a_record_has_a_hundred_thousand_headers_at_most(others: int) -> None:
    held = buffer()
    held.add(chunk(partition(), _with_headers(MAX_HEADERS, others=others)))
    assert len(to_records(held.take(others + 1))[-1].headers) == MAX_HEADERS
    state = partition()
    held = buffer()
    held.add(chunk(state, _with_headers(MAX_HEADERS + 1, others=others), batch(others + 1, 2)))
    with pytest.raises(
        CorruptBatchError, match=f"t-0: .* offset 0 .* has {MAX_HEADERS + 1} headers"
    ) as caught:
        held.take(9)
    assert caught.value.offset == 0
    assert caught.value.next_offset == others + 1


def test_batches_are_decoded_together_up_to_four_mebibytes() -> None:
    size = RUN_BYTES // 4
    rows = [(1_000, None, bytes(size), ())]
    parts = [bytes(encode_batch(rows, base_offset=base, codec=ZSTD)) for base in range(11)]
    state = partition()
    held = buffer()
    held.add(chunk(state, *parts))
    run = held.iterate()
    assert run is not None
    assert [record.offset for record in run] == [0, 1, 2]
    assert [record.offset for record in to_records(held.take(99))] == list(range(3, 11))
    assert state.position == 11


def test_parts_are_bounded_alike_and_what_is_left_out_is_counted_once() -> None:
    size = RUN_BYTES // 4
    parts = [
        bytes(encode_batch([(1_000, None, value, ())], base_offset=base, codec=ZSTD))
        for base in range(0, 20, 2)
        for base, value in ((base, b"no"), (base + 1, bytes(size) + b"yes"))
    ]
    state = partition()
    held = buffer()
    held.add(chunk(state, *parts))
    found = held.take_parts(999, b"yes")
    assert [part.records for part in found] == [3, 3, 3, 1]
    assert held.left_out == 10


@pytest.mark.parametrize("records", [3, 300], ids=["objects", "numpy"])
def test_headers_count_for_what_parts_have(monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    """Empty ones have two bytes, and take many more as objects."""
    monkeypatch.setattr(holding, "PARTS_BYTES", 64_000)
    rows = [(1_000, None, b"v" * (each % 3), (("", b""),)) for each in range(records - 1)]
    rows.append((1_000, None, b"v", (("", b""),) * 700))
    states = [partition(number) for number in range(5)]
    held = buffer()
    for state in states:
        held.add(chunk(state, bytes(encode_batch(rows))))
    assert len(held.take_parts(99_999)) <= 2


def test_the_console_decodes_few_headers_at_once() -> None:
    """Those of a batch of many records aren't counted beforehand."""
    rows = [(1_000, None, b"v", (("", b""),) * 300)] * 2_500
    held = Buffer(BoundedReader(settings(), 16 << 20), 1 << 20, lambda state: None)
    held.add(chunk(partition(), bytes(encode_batch(rows, codec=ZSTD))))
    parts = held.take_parts(99_999)
    assert sum(part.records for part in parts) == 2_500
    assert max(map(_headers_of, parts)) <= MOST_HEADERS_OF_BATCH
    small = [(1_000, None, b"v", (("", b""),) * 800)] * 100
    held = Buffer(BoundedReader(settings(), 16 << 20), 1 << 20, lambda state: None)
    held.add(chunk(partition(), *(bytes(encode_batch(small, base_offset=100 * each)) for each in range(20))))
    assert max(map(_headers_of, held.take_parts(99_999))) <= 2 * MOST_HEADERS_OF_BATCH


def _headers_of(part: Any) -> int:
    return sum(map(len, part.columns.headers))


def test_a_search_comes_back_after_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches that are large decompressed were all searched in one turn of the event loop."""
    monkeypatch.setattr(holding, "PARTS_BYTES", 400_000)
    monkeypatch.setattr(reading, "SEARCH_BYTES", 150_000)
    rows = [(1_000, None, bytes(100_000), ())]
    parts = [bytes(encode_batch(rows, base_offset=base, codec=ZSTD)) for base in range(20)]
    state = partition()
    held = buffer()
    held.add(chunk(state, *parts))
    held.add(chunk(state, batch(20, 1), offset=20))
    seen = []
    while not (found := held.take_parts(999, b"20")):
        assert state.position == held.left_out
        seen.append(held.left_out)
    assert seen == [4, 8, 12, 16, 20][: len(seen)]
    assert len(seen) >= 4
    assert [part.columns.offsets for part in found] == [[20]]


def test_a_search_decompresses_no_more_than_the_console_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    decompress = reading.record_data

    def noting(view: Any, at: int, header: Any, most: int | None) -> Any:
        asked.append(most)
        return decompress(view, at, header, most)

    monkeypatch.setattr(reading, "record_data", noting)
    large = encode_batch([(1_000, None, bytes(200_000), ())], codec=ZSTD)
    held = Buffer(BoundedReader(settings(), 100_000), 1 << 20, lambda state: None)
    held.add(chunk(partition(), bytes(large)))
    with pytest.raises(CorruptBatchError, match="which the console doesn't show"):
        held.take_parts(999, b"20")
    assert asked == [100_000]


def test_a_message_of_an_old_format_has_64_mebibytes_at_most() -> None:
    records = [Record(each, 1_000, None, bytes(1 << 20), ()) for each in range(65)]
    held = buffer()
    held.add(chunk(partition(), bytes(encode_messages(records, codec=1, magic=1))))
    with pytest.raises(CorruptBatchError, match="more than 67108864 bytes"):
        held.take(1)


def test_a_control_batch_is_small() -> None:
    sound = marker(1, 1, commit=False)
    header = read_header(sound)
    body = bytearray(HEADER_SIZE) + sound[HEADER_SIZE:] * 1_000
    many = finish_batch(header._replace(attributes=header.attributes | ZSTD, record_count=1_000), body)
    held = buffer(**COMMITTED)
    sent = batch(0, 1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    held.add(chunk(partition(), sent, bytes(many), batch(2, 1), transactions=aborted((1, 0))))
    with pytest.raises(CorruptBatchError, match="more than 1024 bytes"):
        held.take(1)
