"""Logs made by hand, and their records by ``ottla_protocol``'s decoder."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from ottla_pipeline.reading import CorruptBatch, OffsetRange, ReadSettings, SegmentPlace
from ottla_pipeline.reading.aborted import Aborted, Chunk
from ottla_pipeline.reading.batches import as_octets, find_batches
from ottla_pipeline.reading.decoder import Decoder
from ottla_pipeline.reading.engine import Engine
from ottla_pipeline.reading.plain import PlainEngine
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import Record, decode_records, encode_batch

ID = UUID("6b1f3a52-0000-4000-8000-00000000beef")
TIME = 1_700_000_000_000
ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def settings(**options: Any) -> ReadSettings:
    return ReadSettings(**{"bootstrap_servers": "127.0.0.1:1", "columns": ALL, **options})


def engine(name: str, range: OffsetRange, columns: tuple[str, ...] = ALL) -> Any:
    return (PlainEngine if name == "plain" else Engine)(range, columns)


def decode(
    data: bytes | bytearray,
    range: OffsetRange,
    way: str,
    *,
    aborted: Sequence[Aborted] = (),
    set_aside: list[CorruptBatch] | None = None,
    **options: Any,
) -> pa.Table:
    """What the decoder makes of one chunk."""
    chosen = settings(**options)
    using = engine(way, range, chosen.columns)
    decoder = Decoder(range, chosen, using, None if set_aside is None else set_aside.append)
    found = find_batches(as_octets(data), -1, range.end)
    batches = list(decoder.rows(Chunk(found, aborted)))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema_of(chosen.columns))


def schema_of(columns: tuple[str, ...]) -> pa.Schema:
    from ottla_pipeline.reading.schema import schema

    return schema(columns)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Offset, microseconds, key, value and headers of each row."""
    columns = [table.column(name) for name in ("offset", "timestamp", "key", "value", "headers")]
    columns[1] = columns[1].cast(pa.int64())
    pairs = [
        () if headers is None else tuple((each["key"], each["value"]) for each in headers)
        for headers in columns[4].to_pylist()
    ]
    return list(zip(*(column.to_pylist() for column in columns[:4]), pairs, strict=True))


def expected(data: bytes | bytearray, range: OffsetRange) -> list[tuple[Any, ...]]:
    """The same by ``decode_records``, one batch after the other. Raises CorruptRecordError."""
    rows = []
    for position, header in iter_headers(data):
        if header.is_control or header.last_offset < range.start or header.base_offset >= range.end:
            continue
        rows += [as_row(record) for record in decode_records(data, position, header)]
    return [row for row in rows if range.start <= row[0] < range.end]


def as_row(record: Record) -> tuple[Any, ...]:
    micros = record.timestamp * 1000
    return (
        record.offset,
        micros if abs(micros) < 2**63 else None,
        record.key,
        record.value,
        tuple((name.encode("utf-8", "replace").decode(), value) for name, value in record.headers),
    )


def batch(first: int, count: int, *, size: int = 10, **options: Any) -> bytearray:
    """A batch of records that name their offsets."""
    rows = [
        (TIME + offset, b"k%d" % offset, (b"v%d " % offset).ljust(size, b"."), ())
        for offset in range(first, first + count)
    ]
    return encode_batch(rows, base_offset=first, **options)


class LogFolder:
    """A broker's data folder with one partition."""

    def __init__(self, path: Path, topic: str = "t", partition: int = 0) -> None:
        self.data = path
        self.topic = topic
        self.partition = partition
        self.path = path / f"{topic}-{partition}"
        self.path.mkdir(parents=True)
        (path / "meta.properties").write_text("#\nversion=0\nbroker.id=1\ncluster.id=here\n")
        self.identify(ID)

    def identify(self, id: UUID) -> None:
        text = urlsafe_b64encode(id.bytes).decode().rstrip("=")
        (self.path / "partition.metadata").write_text(f"version: 0\ntopic_id: {text}")

    def segment(self, base: int, batches: Iterable[bytes | bytearray], *, index: bool = True) -> Path:
        """Write a segment, with an index entry for every second batch."""
        path = self.path / f"{base:020d}.log"
        data = b"".join(batches)
        path.write_bytes(data)
        entries = [
            (header.last_offset - base).to_bytes(4, "big") + position.to_bytes(4, "big")
            for position, header in iter_headers(data)
        ]
        if index:
            (self.path / f"{base:020d}.index").write_bytes(b"".join(entries[1::2]))
        return path

    def range(self, start: int, end: int, **options: Any) -> OffsetRange:
        place = SegmentPlace(str(self.data), "here", 1)
        return OffsetRange(self.topic, str(ID), self.partition, start, end, segments=place, **options)
