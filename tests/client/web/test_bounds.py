"""Values that would take minutes or gigabytes to show: what is shown of them is bounded, and so is the work."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from ottla_client.web.avro import AvroSchema
from ottla_client.web.decoding import SHOWN_BYTES, Shown
from ottla_client.web.registry import SchemaError

MOST_MEMORY = 64 << 20
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
TREE = {"type": "record", "name": "T", "fields": [{"name": "c", "type": {"type": "array", "items": "T"}}]}


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < MOST_MEMORY, f"{most >> 20} MiB"


def number(value: int) -> bytes:
    """As Avro writes it."""
    value, octets = value << 1 if value >= 0 else ~(value << 1), b""
    while value > 127:
        octets += bytes([value & 127 | 128])
        value >>= 7
    return octets + bytes([value])


def shown(schema: Any, data: bytes) -> Shown:
    return AvroSchema(json.dumps(schema)).decode(data, framed=False)


@pytest.mark.parametrize(
    ("schema", "data", "why"),
    [
        (PRICE, number(40_000) + b"\x7f" * 40_000, "a decimal of 10 digits has 40,000 bytes"),
        (PRICE, number(40_000) + b"\0" * 39_980 + b"\x80" * 20, "a decimal of 10 digits has 40,000 bytes"),
        (PRICE | {"precision": 10**6}, number(40_000) + b"\x7f" * 40_000, "has 40,000 bytes"),
        ("long", b"\xff" * 40_000 + b"\1", "a number has more than 10 bytes"),
        ("string", b"\xff" * 40_000 + b"\1", "a number has more than 10 bytes"),
    ],
)
def test_numbers_that_are_too_long_are_not_computed(schema: Any, data: bytes, why: str) -> None:
    """Of a megabyte they took minutes, in which the console stood still."""
    with pytest.raises(SchemaError, match=why):
        shown(schema, data)


def test_decimals_are_shown_as_before() -> None:
    fixed = {"type": "fixed", "name": "F", "size": 9, "logicalType": "decimal", "precision": 18, "scale": 3}
    for schema, value in (
        (PRICE, "-99999999.99"),
        (PRICE, "0.00"),
        (fixed, "-999999999999999.999"),
        (PRICE | {"precision": 40, "scale": 40}, "0." + "1234567890" * 4),
        (PRICE | {"precision": 9000, "scale": 0}, "9" * 9000),
    ):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), Decimal(value))
        assert json.loads(shown(schema, out.getvalue()).text) == value
    for octets, value in ((b"\0" * 5_000 + b"\x7f", "1.27"), (b"\xff" * 5_000, "-0.01")):
        assert json.loads(shown(PRICE, number(len(octets)) + octets).text) == value


def test_values_are_written_as_json_writes_them() -> None:
    schema = {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
            {"name": "kinds", "type": {"type": "map", "values": ["null", "double", "Kind"]}},
            {"name": "parts", "type": {"type": "array", "items": ["Order", "string"]}},
            {"name": "none", "type": {"type": "array", "items": "bytes"}},
            {"name": "hash", "type": "bytes"},
            {"name": "nothing", "type": {"type": "record", "name": "Nothing", "fields": []}},
        ],
    }
    part: dict[str, Any] = {
        "at": datetime(2026, 5, 17, tzinfo=UTC),
        "kind": "OLD",
        "kinds": {},
        "parts": [],
        "none": [],
        "hash": b"\x00\xff",
        "nothing": {},
    }
    order = part | {"kinds": {'a"\n': None, "b": float("inf"), "c": "NEW"}, "parts": [part, "ü"]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), order)

    def plain(value: Any) -> str:
        return value.hex() if isinstance(value, bytes) else str(value)

    text = json.dumps(order, indent=2, ensure_ascii=False, default=plain)
    assert shown(schema, out.getvalue()) == Shown(text, "Avro", "")


def test_text_is_written_no_further_than_it_is_shown() -> None:
    """A value of a megabyte, nested ninety times, took two gigabytes of indentation."""
    items = 100_000
    data = b"\2" * 90 + number(items) + b"\0" * items + b"\0" * 91
    with little_memory():
        value = shown(TREE, data)
    assert (len(value.text), value.note) == (SHOWN_BYTES, f"the first {SHOWN_BYTES:,} characters")
    claimed = number(2**62) + b"\2a" * 50_000
    assert len(shown({"type": "array", "items": "string"}, claimed).text) == SHOWN_BYTES
