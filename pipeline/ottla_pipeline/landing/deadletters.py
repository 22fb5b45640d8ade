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
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla_pipeline.landing.files import FileSettings

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
FILES = FileSettings(dictionaries=("topic", "partition", "error"))
_FIELDS = ("topic", "partition", "offset", "timestamp", "error", "last_offset")
HEADERS = tuple(f"ottla.{name}" for name in _FIELDS)
"""Headers of a dead letter in a topic, UTF-8. The timestamp is ISO 8601; only batches have a last offset."""


def rows(origin: pa.Table, records: pa.RecordBatch, errors: pa.Array) -> pa.Table:
    """Rows of records that could not be parsed; ``origin`` begins with topic, partition, offset and timestamp."""
    topic, partition, offset, timestamp = origin.columns[:4]
    nothing = pa.nulls(len(records), pa.int64())
    fields = records.select(["key", "value"]).columns
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


def headers(row: dict[str, Any]) -> list[tuple[str, bytes]]:
    texts = {name: str(value) for name in _FIELDS if (value := row[name]) is not None}
    if row["timestamp"] is not None:
        texts["timestamp"] = row["timestamp"].isoformat()
    return [(f"ottla.{name}", text.encode()) for name, text in texts.items()]


def from_records(records: pa.RecordBatch, topic: str, partition: int) -> pa.Table:
    """Dead letters read from a topic, as rows. A record without our headers counts as one of ``topic`` itself."""
    found = []
    for record in records.to_pylist():
        named = {
            pair["key"]: (pair["value"] or b"").decode(errors="replace") for pair in record["headers"] or ()
        }
        found.append({**record, "topic": topic, "partition": partition, **_where(named)})
    return pa.Table.from_pylist(found, schema=SCHEMA)


def _where(named: dict[str, str]) -> dict[str, Any]:
    """The fields in our headers; empty if they are not ours, as anything may write to that topic."""
    try:
        last, when = named.get("ottla.last_offset"), named.get("ottla.timestamp")
        return {
            "topic": named["ottla.topic"],
            "partition": int(named["ottla.partition"]),
            "offset": int(named["ottla.offset"]),
            "last_offset": None if last is None else int(last),
            "timestamp": None if when is None else dt.datetime.fromisoformat(when),
            "error": named["ottla.error"],
        }
    except (KeyError, ValueError):
        return {}
