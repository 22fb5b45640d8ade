"""Dead letters: records that can't be parsed, and batches that can't be decoded, with where they were and why.

As rows of a table::

    topic, partition, offset   where the record is
    last_offset                of a record batch that can't be decoded, its last offset; null for a record
    timestamp, key, value      of the record; ``value`` of a batch is all its bytes
    error                      why

As records of a topic: key and value as they were, the rest in headers :data:`HEADERS`.
"""

from __future__ import annotations

import datetime as dt
import hmac
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla_pipeline.landing.files import FileSettings
from ottla_pipeline.landing.tables.layout import Layout

if TYPE_CHECKING:
    from ottla_pipeline.reading import CorruptBatch

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("error", pa.string()),
    ]
)
LAYOUT = Layout.plain(SCHEMA)
"""Of files of dead letters on their way."""
FILES = FileSettings(dictionaries=("topic", "partition", "error"))
_FIELDS = ("topic", "partition", "offset", "timestamp", "error", "last_offset")
_PROOF = "proof"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LONGEST = 1000
"""Most characters of an error."""
HEADERS = tuple(f"ottla.{name}" for name in _FIELDS)
"""Headers of a dead letter in a topic, UTF-8. The timestamp is ISO 8601, or microseconds since 1970 outside the years 1
to 9999; only batches have a last offset. Another one, ``ottla.proof``, shows a run after a crash which letters the job
has sent itself."""


def rows(origin: pa.Table, records: pa.RecordBatch, errors: pa.Array) -> pa.Table:
    """Rows of records that could not be parsed; ``origin`` begins with topic, partition, offset and timestamp."""
    topic, partition, offset, timestamp = origin.columns[:4]
    nothing = pa.nulls(len(records), pa.int64())
    fields = records.select(["key", "value"]).columns
    errors = pc.utf8_slice_codeunits(errors, 0, _LONGEST)
    return pa.table([topic, partition, offset, nothing, timestamp, *fields, errors], schema=SCHEMA)


def of_corrupt(corrupt: CorruptBatch) -> pa.Table:
    """The row of a batch that could not be decoded."""
    return pa.Table.from_pylist(
        [
            {
                "topic": corrupt.topic,
                "partition": corrupt.partition,
                "offset": corrupt.first,
                "last_offset": corrupt.last,
                "value": corrupt.data,
                "error": f"the record batch can't be read: {corrupt.reason}",
            }
        ],
        schema=SCHEMA,
    )


def headers(row: dict[str, Any], token: str) -> list[tuple[str, bytes]]:
    """The headers for a row of :func:`plain`.

    ``token`` is the delivery's, which stays in the table: no other writer can make the proof.
    """
    texts = {name: str(value) for name in _FIELDS if (value := row[name]) is not None}
    if row["timestamp"] is not None:
        texts["timestamp"] = _when(row["timestamp"])
    texts[_PROOF] = _proof(row, token)
    return [(f"ottla.{name}", text.encode()) for name, text in texts.items()]


def plain(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts, with timestamps in microseconds: Python's end with the year 9999."""
    return [
        row | {"timestamp": micros}
        for row, micros in zip(
            rows.drop_columns(["timestamp"]).to_pylist(),
            rows.column("timestamp").cast(pa.int64()).to_pylist(),
            strict=True,
        )
    ]


def _when(micros: int) -> str:
    try:
        return (_EPOCH + dt.timedelta(microseconds=micros)).isoformat()
    except OverflowError:
        return str(micros)


def _micros(text: str) -> int:
    """Raises ValueError."""
    if text.lstrip("-").isdecimal():
        return int(text)
    return (dt.datetime.fromisoformat(text) - _EPOCH) // dt.timedelta(microseconds=1)


def _proof(row: dict[str, Any], token: str) -> str:
    where = f"{row['topic']}\0{row['partition']}\0{row['offset']}"
    return hmac.digest(token.encode(), where.encode(), "sha256").hex()


def delivered(records: pa.RecordBatch, token: str) -> Iterator[tuple[str, int, int]]:
    """The topics, partitions and offsets of the dead letters that this delivery has sent."""
    for record in plain(records):
        named = _named(record)
        found = _where(named)
        if found and hmac.compare_digest(
            named.get(f"ottla.{_PROOF}", "").encode(), _proof(found, token).encode()
        ):
            yield found["topic"], found["partition"], found["offset"]


def from_records(records: pa.RecordBatch, topic: str, partition: int) -> pa.Table:
    """Dead letters read from a topic, as rows. A record without our headers counts as one of ``topic`` itself."""
    found = [
        {**record, "topic": topic, "partition": partition, **_where(_named(record))}
        for record in plain(records)
    ]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def _named(record: dict[str, Any]) -> dict[str, str]:
    pairs = record["headers"] or ()
    return {pair["key"]: (pair["value"] or b"").decode(errors="replace") for pair in pairs}


def _where(named: dict[str, str]) -> dict[str, Any]:
    """The fields in our headers; empty if they are not ours, as anything may write to that topic."""
    try:
        last, when = named.get("ottla.last_offset"), named.get("ottla.timestamp")
        return {
            "topic": named["ottla.topic"],
            "partition": int(named["ottla.partition"]),
            "offset": int(named["ottla.offset"]),
            "last_offset": None if last is None else int(last),
            "timestamp": None if when is None else _micros(when),
            "error": named["ottla.error"],
        }
    except (KeyError, TypeError, ValueError):
        return {}
