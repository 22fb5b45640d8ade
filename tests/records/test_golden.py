"""Batches of Apache Kafka's classes, librdkafka, kafka-python and aiokafka: the same records and bytes."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import pytest
from tests.records.golden_files import Golden, as_golden, load

from ottla_broker.log.cleaner.filter import empty_batch, rebuild, record_bytes
from ottla_broker.log.cleaner.records import choose, walk
from ottla_protocol.records.batch import crc_is_valid, read_header
from ottla_protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from ottla_protocol.records.control import (
    ABORT,
    COMMIT,
    ControlRecord,
    decode_control,
    encode_transaction_marker,
)
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import decode_records, encode_batch, rebuild_batch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records
    from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy

JAVA = load("java")
LIBRDKAFKA = load("librdkafka")
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
TIME = 1_700_000_000_000


def named(name: str) -> Golden:
    return next(golden for golden in JAVA if golden.name == name)


def ids(cases: list[Golden]) -> dict[str, Any]:
    return {"argvalues": cases, "ids": [case.name for case in cases]}


@pytest.mark.parametrize("golden", **ids(JAVA))
def test_java_batches_are_read(golden: Golden) -> None:
    header = read_header(golden.batch)
    assert header.size == len(golden.batch)
    assert crc_is_valid(golden.batch, 0, header)
    assert header.record_count == len(golden.records)
    assert [as_golden(record) for record in decode_records(golden.batch)] == golden.records


@pytest.mark.parametrize("golden", **ids(LIBRDKAFKA))
def test_librdkafka_batches_are_read(golden: Golden) -> None:
    assert crc_is_valid(golden.batch, 0, read_header(golden.batch))
    assert [as_golden(record)[1:] for record in decode_records(golden.batch)] == golden.records


# With log append time, readers lose the records' own timestamps, even Kafka's cleaner.
@pytest.mark.parametrize("golden", **ids([g for g in JAVA + LIBRDKAFKA if g.name != "log-append-time"]))
def test_a_batch_read_and_written_again_is_the_same(golden: Golden) -> None:
    header = read_header(golden.batch)
    again = rebuild_batch(header, decode_records(golden.batch))
    if header.codec == NONE:
        assert again == golden.batch
    else:  # Compressors may differ in their choices; what they compressed must not.
        compared = {"batch_length": 0, "crc": 0}
        assert read_header(again)._replace(**compared) == header._replace(**compared)
        assert decode_records(again) == decode_records(golden.batch)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("none", {}),
        (
            "transactional",
            {"transactional": True, "producer_id": 4711, "producer_epoch": 3, "base_sequence": 17},
        ),
    ],
)
def test_records_are_encoded_as_java_does(name: str, options: dict[str, Any]) -> None:
    golden = named(name)
    records = decode_records(golden.batch)
    base_offset = records[0].offset
    assert encode_batch(records, base_offset=base_offset, leader_epoch=9, **options) == golden.batch


def test_records_are_encoded_as_librdkafka_does() -> None:
    golden = next(golden for golden in LIBRDKAFKA if golden.name == "idempotent")
    rows = [record[1:] for record in decode_records(golden.batch)]
    ours = encode_batch(rows, leader_epoch=0, producer_id=4711, producer_epoch=3, base_sequence=0)
    assert ours == golden.batch


@pytest.mark.parametrize(("name", "size"), [("snappy", 16), ("lz4", 7), ("zstd", 4)])
def test_compressed_streams_open_as_in_java(name: str, size: int) -> None:
    golden = named(name)
    ours = rebuild_batch(read_header(golden.batch), decode_records(golden.batch))
    assert ours[61 : 61 + size] == golden.batch[61 : 61 + size]


@pytest.mark.parametrize("golden", **ids([golden for golden in JAVA if golden.original is not None]))
def test_batches_are_cleaned_as_java_does(golden: Golden) -> None:
    assert golden.original is not None
    original = read_header(golden.original)
    offsets = {record[0] - original.base_offset for record in golden.records}
    horizon = -1 if golden.horizon is None else golden.horizon
    data = record_bytes(original, memoryview(golden.original))
    records = walk(data, original.record_count)
    choice = choose(
        records, lambda each: each.offset_delta not in offsets, data, original.base_timestamp, horizon, 2**31
    )
    cleaned = rebuild(original, choice, horizon) if choice.kept else empty_batch(original)
    header, expected = read_header(cleaned.data), read_header(golden.batch)
    # Java's base timestamp is the first record's that stays; here records stay byte for byte if they can.
    free = {"batch_length": 0, "crc": 0} | ({} if choice.moved else {"base_timestamp": 0})
    assert header._replace(**free) == expected._replace(**free)
    assert crc_is_valid(cleaned.data, 0, header)
    assert [as_golden(record) for record in decode_records(cleaned.data)] == golden.records


@pytest.mark.parametrize(("name", "kind"), [("commit", COMMIT), ("abort", ABORT)])
def test_transaction_markers_are_java_s(name: str, kind: int) -> None:
    golden = named(name)
    (record,) = decode_records(golden.batch)
    assert decode_control(record) == ControlRecord(kind, 77)
    assert read_header(golden.batch).is_control
    ours = encode_transaction_marker(
        commit=kind == COMMIT,
        coordinator_epoch=77,
        producer_id=4711,
        producer_epoch=3,
        timestamp_ms=TIME,
        base_offset=42,
        leader_epoch=9,
    )
    assert ours == golden.batch


def test_consecutive_batches_of_many_writers() -> None:
    batches = [golden.batch for golden in JAVA + LIBRDKAFKA]
    found = list(iter_headers(b"".join(batches)))
    assert [header for _, header in found] == [read_header(batch) for batch in batches]
    assert [position for position, _ in found] == [sum(map(len, batches[:at])) for at in range(len(batches))]


# kafka-python and aiokafka, as they are installed: their builders write, ours reads, and the other way round.

ROWS = [
    (TIME, b"key", b"value", ()),
    (TIME + 300, None, b"x" * 9000, ()),
    (TIME - 9000, b"gone", None, ()),
    (TIME + 5, b"", b"", (("trace", b"abc"), ("null", None), ("é漢", b""))),
    (TIME + 5_000_000, b"k" * 70, b"v" * 70, ()),
]


class Builder(Protocol):
    def append(self, offset: int, **record: Any) -> object: ...
    def build(self) -> bytearray: ...


def kafka_python_builder(codec: int, transactional: bool) -> Builder:
    builder: Builder = kafka.record.default_records.DefaultRecordBatchBuilder(
        2, codec, transactional, 4711, 3, 17, 1 << 20
    )
    return builder


def aiokafka_builder(codec: int, transactional: bool) -> Builder:
    builder: Builder = _DefaultRecordBatchBuilderPy(2, codec, transactional, 4711, 3, 17, 1 << 20)
    return builder


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("make", [kafka_python_builder, aiokafka_builder])
def test_python_clients_write_the_same(make: Any, codec: int, transactional: bool) -> None:
    builder = make(codec, transactional)
    for offset, (timestamp, key, value, headers) in enumerate(ROWS):
        assert builder.append(offset, timestamp=timestamp, key=key, value=value, headers=list(headers))
    theirs = bytes(builder.build())
    header = read_header(theirs)
    assert crc_is_valid(theirs, 0, header)
    assert [record[1:] for record in decode_records(theirs)] == ROWS
    ours = encode_batch(
        ROWS,
        codec=codec,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=17,
        transactional=transactional,
        leader_epoch=header.partition_leader_epoch,
    )
    if codec == NONE:
        assert ours == theirs
    ours_header = read_header(ours)
    assert ours_header._replace(batch_length=0, crc=0) == header._replace(batch_length=0, crc=0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reader", [kafka.record.default_records.DefaultRecordBatch, _DefaultRecordBatchPy])
def test_python_clients_read_ours(reader: Any, codec: int) -> None:
    batch = reader(bytes(encode_batch(ROWS, base_offset=7, codec=codec)))
    assert batch.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == [(offset, *row) for offset, row in enumerate(ROWS, 7)]
