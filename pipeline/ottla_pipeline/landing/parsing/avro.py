"""Avro records of one schema, by fastavro.

Values are bare, or framed as by Confluent's serializers: a zero byte and four bytes of a schema id come first. The id
is not looked up: every value must have been written with the given schema.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ottla_pipeline.landing.errors import SchemaRefused
from ottla_pipeline.landing.parsing import avro_numbers
from ottla_pipeline.landing.parsing.base import Failure, Malformed, Parsed, nullable
from ottla_pipeline.landing.schema import TIMESTAMP, checked

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}
_DECIMALS = ("bytes", "fixed")
_DECIMAL = "ottla-decimal"
"""The logical type by which fastavro finds ``_decimal``."""
_BYTES_OF_DIGIT = 0.4153
_CONFLUENT = 5


class AvroParser:
    """Parses records of the Avro schema ``text``."""

    def __init__(self, text: str, *, confluent: bool = False) -> None:
        import fastavro

        self._read = fastavro.schemaless_reader
        document = json.loads(text)
        self.schema = from_avro(document)
        fastavro.parse_schema(document)  # refuses decimals that can't be
        for kind in _DECIMALS:
            fastavro.read.LOGICAL_READERS[f"{kind}-{_DECIMAL}"] = _decimal
        named: dict[str, Any] = {}
        self._parsed = fastavro.parse_schema(_readable(document), named)
        self._check = avro_numbers.checker(self._parsed, named)
        self._skip = _CONFLUENT if confluent else 0
        self._names = self.schema.names

    def parse(self, values: pa.Array) -> Parsed:
        """Parse records; a null value is a row of nulls."""
        rows: list[Any] = []
        good: list[int] = []
        failures: list[Failure] = []
        nothing = dict.fromkeys(self._names)
        suspects = avro_numbers.suspects(values)
        for at, value in enumerate(values.to_pylist()):
            try:
                rows.append(nothing if value is None else self._one(value, at in suspects))
            except Malformed as error:
                failures.append(Failure(at, str(error)))
            else:
                good.append(at)
        try:
            table = self._table(rows)
        except Malformed:
            table, good = self._one_by_one(rows, good, failures)
        if not failures:
            return Parsed(table)
        import numpy as np

        failures.sort(key=lambda one: one.row)
        return Parsed(table, np.array(good, dtype=np.int64), failures)

    def _table(self, rows: list[Any]) -> pa.Table:
        try:
            return pa.Table.from_pylist(rows, schema=self.schema)
        except (pa.ArrowException, OverflowError) as error:
            # An encoded int may be a long, and a decimal may have more digits than declared.
            raise Malformed(f"a value does not fit its type: {error}") from error

    def _one_by_one(
        self, rows: list[Any], places: list[int], failures: list[Failure]
    ) -> tuple[pa.Table, list[int]]:
        """The rows whose values fit, and their places; adds the others to ``failures``."""
        fitting, good = [], []
        for at, row in zip(places, rows, strict=True):
            try:
                self._table([row])
            except Malformed as error:
                failures.append(Failure(at, str(error)))
            else:
                fitting.append(row)
                good.append(at)
        return self._table(fitting), good

    def _one(self, value: bytes, suspect: bool) -> Any:
        if self._skip and value[:1] != b"\0":
            raise Malformed("the value does not begin with the zero byte of Confluent's framing")
        source = io.BytesIO(value)
        source.seek(self._skip)
        # fastavro raises many errors for malformed bytes: EOFError, IndexError, UnicodeDecodeError, …
        try:
            record = self._read(source, self._parsed, None)
            if suspect:
                self._check(value, self._skip)
        except Exception as error:
            raise Malformed(
                f"not a record of this Avro schema: {type(error).__name__} {error}".strip()
            ) from error
        if source.tell() != len(value):
            raise Malformed(
                f"{len(value) - source.tell()} bytes are left after the record of this Avro schema"
            )
        return record


def check_avro(document: Any) -> None:
    """Raise SchemaRefused if records of this Avro schema can't be read, or have no columns."""
    from fastavro.schema import SchemaParseException

    try:
        AvroParser(json.dumps(document))
    except KeyError as error:
        raise SchemaRefused(f"the Avro schema lacks {error}") from error
    except (RecursionError, SchemaParseException, TypeError, ValueError, pa.ArrowException) as error:
        raise SchemaRefused(f"the Avro schema can't be read: {error}") from error


def from_avro(document: Any) -> pa.Schema:
    """The columns of a record schema.

    Raises SchemaRefused if it is no record, or a field has no column; the line says which.
    """
    if not isinstance(document, Mapping) or document.get("type") != "record":
        raise SchemaRefused("the Avro schema is not of a record")
    kind = _type(document, {}, "the record")
    return nullable(checked(pa.schema(list(kind)), "of Avro"))


def _readable(node: Any) -> Any:
    """The schema without logical types of text, of which fastavro would make objects that no column takes.

    Decimals are read by ``_decimal``.
    """
    if isinstance(node, list):
        return [_readable(one) for one in node]
    if not isinstance(node, Mapping):
        return node
    made = {name: _readable(one) for name, one in node.items() if (name, one) != ("logicalType", "uuid")}
    if made.get("logicalType") == "decimal" and made.get("type") in _DECIMALS:
        made["logicalType"] = _DECIMAL
    return made


def _decimal(data: bytes, schema: Any, _: Any = None) -> Any:
    """A decimal, if it isn't longer than its precision needs. Raises ValueError.

    The time for converting one grows with the square of its size. What is in front of as many bytes as the precision
    needs has to repeat the sign.
    """
    import fastavro

    most = int(schema["precision"] * _BYTES_OF_DIGIT) + 2
    if len(data) > most:
        sign = b"\xff" if data[-most] & 0x80 else b"\0"
        if data[:-most].strip(sign):
            raise ValueError(f"a decimal of {schema['precision']} digits has {len(data):,} bytes")
        data = data[-most:]
    return fastavro.read.LOGICAL_READERS["bytes-decimal"](data, schema, None)


def _type(node: Any, named: dict[str, Any], where: str) -> pa.DataType:
    if isinstance(node, list):
        left = [one for one in node if one != "null"]
        if len(left) != 1:
            raise SchemaRefused(f"{where}: a union of {len(left)} types is no column")
        return _type(left[0], named, where)
    if isinstance(node, str):
        if node in _SIMPLE:
            return _SIMPLE[node]
        if node not in named:
            raise SchemaRefused(
                f"{where}: {node!r} is no type that this Avro schema knows; one that contains itself is no table"
            )
        return named[node]
    if not isinstance(node, Mapping):
        raise SchemaRefused(f"{where}: {node!r} is no type of Avro")
    kind = node.get("type")
    if kind == "fixed" and (type(node["size"]) is not int or node["size"] < 1):
        raise SchemaRefused(f"{where}: {node['size']!r} is no size of a fixed")
    found: pa.DataType
    if kind == "record":
        fields = [
            (one["name"], _type(one["type"], named, f"field {one['name']!r}"))
            for one in node.get("fields", ())
        ]
        if not fields:
            # Arrays of them could claim any number of items without a byte.
            raise SchemaRefused(f"{where}: a record without fields is no column")
        found = pa.struct(fields)
    elif kind == "array":
        found = pa.list_(pa.field("element", _type(node.get("items"), named, where)))
    elif kind == "map":
        found = pa.map_(pa.string(), _type(node.get("values"), named, where))
    elif node.get("logicalType") == "decimal":
        found = pa.decimal128(int(node["precision"]), int(node.get("scale", 0)))
    elif node.get("logicalType") in _LOGICAL and (kind, node["logicalType"]) != ("fixed", "uuid"):
        found = _LOGICAL[node["logicalType"]]
    elif node.get("logicalType"):
        raise SchemaRefused(f"{where}: the logical type {node['logicalType']!r} is no column")
    else:
        found = _type(kind, named, where)
    if "name" in node:
        named[node["name"]] = found
        if node.get("namespace"):
            named[f"{node['namespace']}.{node['name']}"] = found
    return found
