"""Spark's types for the columns of a Kafka source; Spark refuses a record batch that differs in any detail."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

HEADER_LIST: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADER_LIST,
}


def schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(name, _TYPES[name]) for name in columns])
