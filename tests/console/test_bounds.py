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

from ottla_console import protobuf
from ottla_console.avro import AvroSchema
from ottla_console.decoding import SHOWN_BYTES, Shown, show
from ottla_console.registry import SchemaError

MOST_MEMORY = 32 << 20
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
        ("long", b"\xff" * 9 + b"\2", "a number has more than 64 bits"),
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


WIDE = (
    """
    syntax = "proto3";
    import "google/protobuf/any.proto";
    message Order {
      repeated Item items = 1;
      repeated int32 numbers = 2;
      repeated fixed64 sizes = 3;
      google.protobuf.Any any = 4;
      map<int32, Item> named = 5;
      Order next = 6;
      bytes payload = 7;
    }
    message Item { """
    + " ".join(f"string field_number_{number} = {number};" for number in range(1, 31))
    + "}"
)
ITEMS = b"\x0a\0" * 500_000


@pytest.fixture(scope="module")
def wide() -> protobuf.ProtobufSchema:
    return protobuf.of_text(WIDE, {})


def field(number: int, data: bytes) -> bytes:
    """A field with a length."""
    size, octets = len(data), bytes([number << 3 | 2])
    while size > 127:
        octets += bytes([size & 127 | 128])
        size >>= 7
    return octets + bytes([size]) + data


def any_of(message: str, data: bytes) -> bytes:
    return field(1, f"type.googleapis.com/{message}".encode()) + field(2, data)


BOMBS = {
    "items": ITEMS,
    "items in an Any": field(4, any_of("Order", ITEMS)),
    "items in an Any in an Any": field(4, any_of("Order", field(4, any_of("Order", ITEMS)))),
    "an Any in two parts": field(4, any_of("Item", ITEMS)) + field(4, field(1, b"x/Order")),
    "items below others": field(6, field(6, field(6, ITEMS))),
    "a map": b"".join(field(5, b"\x08" + bytes([key & 127 | 128, key >> 7])) for key in range(10_000)),
    "packed numbers": field(2, b"\1" * 1_000_000),
    "packed numbers of eight bytes": field(3, b"\0" * 1_000_000),
    "fields of another schema": b"\xf8\x07\0" * 300_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_messages_are_parsed_no_further_than_they_are_shown(wide: protobuf.ProtobufSchema, name: str) -> None:
    """A value of a megabyte, of empty messages with thirty fields each, took five gigabytes."""
    with little_memory():
        value = wide.decode(b"\0" + BOMBS[name], framed=True)
    assert len(value.text) <= SHOWN_BYTES
    if name == "fields of another schema":
        assert value.note == "it has more fields and elements than are shown"
    else:
        assert value.note == f"the first {SHOWN_BYTES:,} characters"


def test_a_cut_message_is_the_beginning_of_the_whole_one(wide: protobuf.ProtobufSchema) -> None:
    ending = field(6, field(2, b"\5" * 100_000) + field(7, b"behind"))
    text = wide.decode(b"\0" + ending, framed=True).text
    assert text.startswith('{\n  "next": {\n    "numbers": [\n      5,\n      5,')
    assert len(text) == SHOWN_BYTES
    # Texts have no limit of their own, as they are as long as their bytes.
    payload = wide.decode(b"\0" + field(7, b"x" * 30_000) + field(2, b"\1\2"), framed=True)
    assert json.loads(payload.text) | {"payload": ""} == {
        "items": [],
        "numbers": [1, 2],
        "sizes": [],
        "named": {},
        "payload": "",
    }
    assert payload.note == ""


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a\5a", "longer than its message"),
        (b"\x10" + b"\xff" * 11, "more than 10 bytes"),
        (b"\x10\x80", "ends within a number"),
        (b"\x0b\x08\1", "a group has no end"),
        (b"\x0f", "of no type of Protobuf's"),
        (b"\x19\0\0", "is cut"),
        (b"\x0b" * 200, "nested too deeply"),
    ],
)
def test_messages_that_are_malformed(wide: protobuf.ProtobufSchema, data: bytes, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        wide.decode(b"\0" + data, framed=True)


def test_json_is_indented_no_further_than_it_is_shown() -> None:
    """Of 64 KB, which are nested deeply, it took a hundred megabytes, in the way of everyone else."""
    data = b"[" * 900 + b"0," * 30_000 + b"0" + b"]" * 900
    with little_memory():
        value = show(data)
    assert value == Shown(data.decode(), "JSON", "")
