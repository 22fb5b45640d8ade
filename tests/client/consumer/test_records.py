"""Batches to records: what is handed out, what is passed over, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.consumer.chunks import aborted, batch, buffer, chunk, marker, partition, settings, values

from ottla_client import ConsumerRecord, TimestampType
from ottla_client.consumer.buffer import RUN
from ottla_client.consumer.records import RecordReader
from ottla_client.consumer.rows import to_records
from ottla_client.errors import ConfigurationError, CorruptBatchError, DeserializationError
from ottla_protocol.records.batch import read_header
from ottla_protocol.records.message_set import encode_messages
from ottla_protocol.records.record import Record, encode_batch, finish_batch, rebuild_batch


@pytest.mark.parametrize("codec", range(5))
def test_records_have_all_their_fields(codec: int) -> None:
    rows = [(5, b"k", b"v", (("h", b"1"), ("n", None))), (6, None, None, ())]
    state = partition(3)
    held = buffer()
    held.add(chunk(state, bytes(encode_batch(rows, base_offset=10, codec=codec)), offset=10))
    records = to_records(held.take(9))
    assert records == [
        ConsumerRecord("t", 3, 10, 5, b"k", b"v", (("h", b"1"), ("n", None)), TimestampType.CREATE_TIME),
        ConsumerRecord("t", 3, 11, 6, None, None, (), TimestampType.CREATE_TIME),
    ]
    assert type(records[0]) is ConsumerRecord
    assert state.position == 12


def test_the_brokers_timestamp() -> None:
    state = partition()
    held = buffer()
    held.add(chunk(state, batch(0, 2, log_append_time=True)))
    assert {record.timestamp_type for record in held.take(9)[0].records()} == {TimestampType.LOG_APPEND_TIME}


def test_what_is_before_the_position_in_its_batch_is_left_out() -> None:
    state = partition(position=3)
    held = buffer()
    held.add(chunk(state, batch(0, 5), offset=3))
    assert values(held.take(9)) == [3, 4]


def test_gaps_of_compaction_and_empty_batches() -> None:
    def kept(base: int, count: int, *offsets: int) -> bytes:
        from ottla_protocol.records.record import decode_records

        whole = batch(base, count)
        records: list[Record] = [each for each in decode_records(whole) if each.offset in offsets]
        return bytes(rebuild_batch(read_header(whole), records))

    state = partition()
    held = buffer()
    held.add(chunk(state, kept(0, 5, 1, 3), kept(5, 5), kept(20, 3, 20)))
    assert values(held.take(2)) == [1, 3]
    assert state.position == 5
    assert values(held.take(9)) == [20]
    assert state.position == 23
    assert held.take(9) == []


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    state = partition()
    held = buffer()
    whole = chunk(state, batch(0, 2), batch(2, 2)[:-1])
    assert whole.end_offset == 2
    held.add(whole)
    assert values(held.take(9)) == [0, 1]
    assert chunk(state, batch(0, 2)[:-1]).size == 0


def test_small_batches_are_decoded_together() -> None:
    state = partition()
    held = buffer()
    held.add(chunk(state, *(batch(base, 3) for base in range(0, 3 * RUN, 3))))
    run = held.iterate()
    assert run is not None
    assert RUN <= len([int(record.value) for record in run]) < RUN + 3  # whole batches


COMMITTED = {"isolation_level": "read_committed"}


def test_aborted_records_and_markers_are_left_out() -> None:
    parts = (
        batch(0, 2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        batch(2, 2, producer_id=2, producer_epoch=0, base_sequence=0, transactional=True),
        marker(4, 1, commit=False),
        batch(5, 1, producer_id=1, producer_epoch=0, base_sequence=2, transactional=True),
        marker(6, 2, commit=True),
        marker(7, 1, commit=True),
        batch(8, 1),
        batch(9, 1, producer_id=1, producer_epoch=0, base_sequence=9),
    )
    for isolation, expected in (
        ({}, [0, 1, 2, 3, 5, 8, 9]),
        (COMMITTED, [2, 3, 5, 8, 9]),
    ):
        state = partition()
        held = buffer(**isolation)
        held.add(chunk(state, *parts, transactions=aborted((1, 0))))
        assert values(held.take(99)) == expected
        assert state.position == 10


def test_a_producer_may_abort_twice() -> None:
    def sent(base: int) -> bytes:
        return batch(base, 1, producer_id=1, producer_epoch=0, base_sequence=base, transactional=True)

    state = partition()
    held = buffer(**COMMITTED)
    parts = (
        sent(0),
        marker(1, 1, commit=False),
        sent(2),
        marker(3, 1, commit=True),
        sent(4),
        marker(5, 1, commit=False),
    )
    held.add(chunk(state, *parts, transactions=aborted((1, 4), (1, 0))))
    assert values(held.take(99)) == [2]
    assert held.take(99) == []
    assert state.position == 6


def test_a_marker_at_the_end_moves_the_position() -> None:
    state = partition()
    held = buffer(**COMMITTED)
    held.add(chunk(state, marker(0, 1, commit=True)))
    assert held.take(9) == []
    assert state.position == 1
    assert state.buffered == 0


def damaged(good: bytes) -> bytes:
    return good[:-1] + bytes([good[-1] ^ 1])


def test_a_damaged_batch_comes_after_all_that_is_before_it() -> None:
    state = partition()
    held = buffer()
    held.add(chunk(state, batch(0, 3), damaged(batch(3, 3)), batch(6, 3)))
    assert values(held.take(99)) == [0, 1, 2]
    with pytest.raises(CorruptBatchError, match="checksum") as caught:
        held.take(99)
    assert (caught.value.offset, caught.value.next_offset) == (3, 6)
    assert state.position == 3
    assert state.fetch_offset == 3  # it is fetched once more


@pytest.mark.parametrize("count", [5, 300])
def test_a_record_behind_the_last_offset_of_its_batch(count: int) -> None:
    """Where it is next, no batch was found for it: StopIteration."""

    def picky(value: bytes) -> int:
        if value == b"3":
            raise ValueError
        return int(value)

    whole = batch(0, count)
    bad = bytes(finish_batch(read_header(whole)._replace(last_offset_delta=1), bytearray(whole)))
    for read in (lambda held: held.take_parts(2), lambda held: held.take(9)):
        held = buffer(value_deserializer=picky)
        held.add(chunk(partition(), bad, batch(2, 1)))
        with pytest.raises(
            CorruptBatchError, match=f"record {count - 1} comes behind the last offset 1"
        ) as caught:
            read(held)
        assert caught.value.next_offset == 2


def test_checksums_can_be_left_alone() -> None:
    state = partition()
    held = buffer(check_crcs=False)
    good = bytearray(batch(0, 1))
    good[17] ^= 1
    held.add(chunk(state, bytes(good)))
    assert values(held.take(9)) == [0]


@pytest.mark.parametrize(("magic", "why"), [(1, "checksum"), (3, "magic")])
def test_an_unknown_format_is_named(magic: int, why: str) -> None:
    state = partition()
    held = buffer()
    other = bytearray(batch(0, 1))
    other[16] = magic
    held.add(chunk(state, bytes(other)))
    with pytest.raises(CorruptBatchError, match=why):
        held.take(9)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=6),
    st.integers(0, 30),
    st.integers(1, 30),
)
def test_old_formats(pieces: list[tuple[int, int, int]], start: int, most: int) -> None:
    """Messages of the formats 0 and 1, single and compressed, before batches and after them."""
    parts: list[bytes] = []
    expected: list[ConsumerRecord[Any, Any]] = []
    offset = 0
    for magic, codec, count in pieces:
        records = [Record(offset + n, 1_000 + n, b"k" if n else None, b"%d" % n) for n in range(count)]
        log_append_time = codec == 3 and magic > 0
        if magic < 2:
            time = 7 if log_append_time else None
            parts.append(encode_messages(records, magic, codec=codec, append_time_ms=time))
        else:
            rows = [each[1:] for each in records]
            kind = {"log_append_time": True} if log_append_time else {}
            parts.append(bytes(encode_batch(rows, base_offset=offset, codec=codec, **kind)))
        for each in records:
            at = -1 if magic == 0 else 7 if log_append_time and magic == 1 else each.timestamp
            if log_append_time and magic == 2:
                at = records[-1].timestamp
            kind_ = TimestampType(-1 if magic == 0 else int(log_append_time))
            expected.append(ConsumerRecord("t", 0, each.offset, at, each.key, each.value, (), kind_))
        offset += count
    state = partition(position=start)
    held = buffer()
    held.add(chunk(state, *parts, offset=start))
    found: list[ConsumerRecord[Any, Any]] = []
    while more := to_records(held.take(most)):
        found += more
    assert found == expected[start:]
    assert state.position == max(start, offset)


def test_a_damaged_message_of_an_old_format() -> None:
    state = partition()
    held = buffer()
    messages = [encode_messages([Record(n, 0, None, b"v")], 1) for n in range(3)]
    held.add(chunk(state, messages[0], messages[1][:-1] + b"w", messages[2]))
    assert len(to_records(held.take(9))) == 1
    with pytest.raises(CorruptBatchError, match="checksum is wrong; seek to 2") as caught:
        held.take(9)
    assert (caught.value.offset, caught.value.next_offset) == (1, 2)


@given(st.binary(max_size=200), st.integers(0, 100))
def test_garbage_is_refused_or_has_nothing_in_it(garbage: bytes, at: int) -> None:
    good = batch(0, 5)
    state = partition()
    made = chunk(state, good[:at] + garbage)
    reader = RecordReader(settings())
    try:
        while reader.read(made, 10):
            assert all(record.offset <= 4 for record in made.rows.records())
    except CorruptBatchError:
        pass


def test_deserializers_get_what_is_not_null() -> None:
    rows: list[Any] = [(0, b"1", b"", ()), (0, None, b"2", ()), (0, b"3", None, ())]
    state = partition()
    held = buffer(key_deserializer=int, value_deserializer=lambda raw: raw.decode() + "!")
    held.add(chunk(state, bytes(encode_batch(rows))))
    records = to_records(held.take(9))
    assert [(record.key, record.value) for record in records] == [(1, "!"), (None, "2!"), (3, None)]


@pytest.mark.parametrize("bad", [0, 1, 4, 5, 9])
@pytest.mark.parametrize("size", [1, 3, 10])
def test_a_record_that_cannot_be_deserialized(bad: int, size: int) -> None:
    def picky(raw: bytes) -> int:
        if int(raw) == bad:
            raise ValueError("not this one")
        return int(raw)

    state = partition()
    held = buffer(value_deserializer=picky)
    held.add(chunk(state, *(batch(base, min(size, 10 - base)) for base in range(0, 10, size))))
    before = values(held.take(99)) if bad else []
    assert before == list(range(bad))
    for _ in range(2):
        with pytest.raises(DeserializationError, match="not this one") as caught:
            held.take(99)
        error = caught.value
        assert (error.partition, error.offset, error.value) == (state.partition, bad, b"%d" % bad)
        assert isinstance(error.__cause__, ValueError)
        assert state.position == bad
    assert held.skip_to(state, bad + 1) == (bad < 9)
    if bad < 9:
        assert values(held.take(99)) == list(range(bad + 1, 10))


def test_a_deserializer_that_recovers() -> None:
    failures = iter([True, True])

    def moody(raw: bytes) -> int:
        if raw == b"1" and next(failures, False):
            raise ValueError
        return int(raw)

    state = partition()
    held = buffer(value_deserializer=moody)
    held.add(chunk(state, batch(0, 3)))
    assert values(held.take(99)) == [0, 1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"auto_offset_reset": "smallest"},
        {"isolation_level": "none"},
        {"fetch_min_bytes": 0},
        {"fetch_max_wait_ms": "500"},
        {"max_poll_records": -1},
        {"heartbeat_interval_ms": 45_000},
        {"fetch_max_wait_ms": 30_000},
        {"group_id": ""},
        {"group_instance_id": "x"},
        {"value_deserializer": "utf-8"},
    ],
    ids=str,
)
def test_options_that_cannot_be_right(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        settings(**wrong)
