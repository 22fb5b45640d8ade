"""Control records, those of other versions and kinds included."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_protocol.records.batch import HEADER_SIZE, CorruptRecordError, read_header
from ottla_protocol.records.control import (
    ABORT,
    COMMIT,
    ControlRecord,
    control_type,
    decode_control,
    decode_transaction_marker,
    encode_transaction_marker,
)
from ottla_protocol.records.record import Record, decode_records, encode_batch


def control(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, 0, key, value)


@pytest.mark.parametrize("commit", [True, False])
def test_markers_are_read_as_they_were_written(commit: bool) -> None:
    batch = encode_transaction_marker(
        commit=commit, coordinator_epoch=5, producer_id=1, producer_epoch=2, timestamp_ms=3
    )
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1
    (record,) = decode_records(batch)
    decoded = decode_control(record)
    assert decoded == ControlRecord(COMMIT if commit else ABORT, 5)


@given(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**62),
)
def test_markers_are_batches_like_others(
    commit: bool, coordinator_epoch: int, producer_id: int, epoch: int, timestamp_ms: int
) -> None:
    key, value = struct.pack(">hh", 0, commit), struct.pack(">hi", 0, coordinator_epoch)
    assert encode_transaction_marker(
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp_ms=timestamp_ms,
        base_offset=7,
        leader_epoch=3,
    ) == encode_batch(
        [(timestamp_ms, key, value, ())],
        base_offset=7,
        leader_epoch=3,
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=True,
        control=True,
    )


@given(st.booleans(), st.integers(-(2**31), 2**31 - 1), st.integers(0, 40), st.integers(0, 255))
def test_the_quick_way_reads_markers_as_the_general_one(
    commit: bool, coordinator_epoch: int, place: int, byte: int
) -> None:
    """A batch that differs in any byte of its record is left to the general way, or read as that reads it."""
    batch = encode_transaction_marker(
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        producer_id=1,
        producer_epoch=2,
        timestamp_ms=3,
    )
    header = read_header(batch)
    expected = ControlRecord(COMMIT if commit else ABORT, coordinator_epoch)
    assert decode_transaction_marker(header, batch) == expected
    assert decode_transaction_marker(header._replace(record_count=2), batch) is None
    assert decode_transaction_marker(header, batch + b"0") is None
    if HEADER_SIZE + place < len(batch):
        batch[HEADER_SIZE + place] = byte
    found = decode_transaction_marker(header, batch)
    if found is not None:
        (record,) = decode_records(batch, 0, header)
        assert found == decode_control(record)


def test_unknown_kinds_are_skipped() -> None:
    for kind in (2, 5, 1000, -1):
        decoded = decode_control(control(struct.pack(">hh", 0, kind), None))
        assert decoded == ControlRecord(kind, None)


def test_the_known_part_of_later_versions_is_read() -> None:
    key = struct.pack(">hhq", 7, COMMIT, 1)
    assert control_type(key) == COMMIT
    assert decode_control(control(key, struct.pack(">hiq", 3, 9, 1))) == ControlRecord(COMMIT, 9)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", struct.pack(">hh", -1, 0)])
def test_broken_keys(key: bytes | None) -> None:
    with pytest.raises(CorruptRecordError, match="control record's key"):
        decode_control(control(key, struct.pack(">hi", 0, 1)))


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0", struct.pack(">hi", -1, 0)])
def test_broken_markers(value: bytes | None) -> None:
    with pytest.raises(CorruptRecordError, match="transaction marker"):
        decode_control(control(struct.pack(">hh", 0, ABORT), value))
