"""Avro records of one schema.

Values are bare, or framed as by Confluent's serializers: a zero byte and four bytes of a schema id come first. There is
no registry, so the user says which ids the given schema has: a value with another one was written by another schema,
whose fields would land in the wrong columns.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping
from typing import Any, Final

import pyarrow as pa

from ottla_pipeline.landing.errors import SchemaRefused
from ottla_pipeline.landing.parsing import avro_decoding as decoding
from ottla_pipeline.landing.parsing.avro_decoding import Decode
from ottla_pipeline.landing.parsing.base import Failure, Parsed, one_by_one
from ottla_pipeline.landing.parsing.malformed import Malformed
from ottla_pipeline.landing.schema import TIMESTAMP, checked, nullable

_LOCAL: Final = pa.timestamp("us")
_SIMPLE: Final[Mapping[str, tuple[pa.DataType, Decode]]] = {
    "boolean": (pa.bool_(), decoding.flag),
    "int": (pa.int32(), decoding.whole),
    "long": (pa.int64(), decoding.long),
    "float": (pa.float32(), decoding.number("<f")),
    "double": (pa.float64(), decoding.number("<d")),
    "bytes": (pa.binary(), decoding.octets),
    "string": (pa.string(), decoding.text),
}
_LOGICAL: Final[Mapping[tuple[str, str], tuple[pa.DataType, Decode]]] = {
    ("int", "date"): (pa.date32(), decoding.whole),
    ("long", "timestamp-millis"): (TIMESTAMP, decoding.millis),
    ("long", "timestamp-micros"): (TIMESTAMP, decoding.long),
    ("long", "local-timestamp-millis"): (_LOCAL, decoding.millis),
    ("long", "local-timestamp-micros"): (_LOCAL, decoding.long),
}
"""Others land as the type that they are of, as Avro's specification asks of readers that don't know one."""
_WIDER: Final[Mapping[frozenset[str], str]] = {
    frozenset(("int", "long")): "long",
    frozenset(("float", "double")): "double",
}
_FRAME: Final = struct.Struct(">bI")


class AvroParser:
    """Parses records of the Avro schema ``text``; with ``ids``, in Confluent's framing with one of them."""

    def __init__(self, text: str, ids: Collection[int] | None = None) -> None:
        kind, self._decode = _record(json.loads(text))
        self.schema = nullable(checked(pa.schema(list(kind)), "of Avro"))
        self.wanted = self.schema
        self._ids = ids

    def parse(self, values: pa.Array) -> Parsed:
        """Parse records; a null value is a row of nulls."""
        failures: list[Failure] = []
        nothing: Mapping[str, Any] = dict.fromkeys(self.schema.names)
        rows, good = one_by_one(
            values.to_pylist(), lambda value: nothing if value is None else self._one(value), failures
        )
        columns = [pa.array([row[one.name] for row in rows], one.type) for one in self.schema]
        table = pa.Table.from_arrays(columns, schema=self.schema)
        if not failures:
            return Parsed(table)
        import numpy as np

        return Parsed(table, np.array(good, dtype=np.int64), failures)

    def _one(self, value: bytes) -> Mapping[str, Any]:
        start = 0 if self._ids is None else self._framed(value, self._ids)
        try:
            record, end = self._decode(value, start)
        except IndexError:
            raise Malformed("the value ends in the middle of a record of this Avro schema") from None
        if end != len(value):
            raise Malformed(f"{len(value) - end} bytes are left after the record of this Avro schema")
        found: Mapping[str, Any] = record
        return found

    def _framed(self, value: bytes, ids: Collection[int]) -> int:
        """Where the record begins in Confluent's framing."""
        if len(value) < _FRAME.size or value[0]:
            raise Malformed(
                "the value does not begin with the zero byte and the schema id of Confluent's framing"
            )
        _, found = _FRAME.unpack_from(value)
        if found not in ids:
            known = f"it is {' or '.join(map(str, ids))}" if ids else "it is not given"
            raise Malformed(
                f"the value was written with schema id {found}, and {known} for this schema (schema_ids): its fields"
                " may be others"
            )
        return _FRAME.size


def check_avro(document: Any) -> None:
    """Raise SchemaRefused if records of this Avro schema can't be read, or have no columns."""
    try:
        AvroParser(json.dumps(document))
    except KeyError as error:
        raise SchemaRefused(f"the Avro schema lacks {error}") from error
    except (RecursionError, TypeError, ValueError, pa.ArrowException) as error:
        raise SchemaRefused(f"the Avro schema can't be read: {error}") from error


def _record(document: Any) -> tuple[pa.DataType, Decode]:
    if not isinstance(document, Mapping) or document.get("type") != "record":
        raise SchemaRefused("the Avro schema is not of a record")
    return _Types().of(document, "", "the record")


class _Types:
    """The types of one schema, with those that have names."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[pa.DataType, Decode]] = {}

    def of(self, node: Any, space: str, where: str) -> tuple[pa.DataType, Decode]:
        """The type of a column, and what decodes its values; ``space`` is the namespace."""
        if isinstance(node, list):
            return self._union(node, space, where)
        if isinstance(node, str):
            if node in _SIMPLE:
                return _SIMPLE[node]
            full = node if "." in node or not space else f"{space}.{node}"
            if (found := self._named.get(full, self._named.get(node))) is None:
                raise SchemaRefused(
                    f"{where}: {node!r} is no type that this Avro schema knows; one that contains itself is no table"
                )
            return found
        if not isinstance(node, Mapping) or not isinstance(node.get("type"), str):
            raise SchemaRefused(f"{where}: {node!r} is no type of Avro")
        if node["type"] == "array":
            kind, decode = self.of(node.get("items"), space, where)
            return pa.list_(pa.field("element", kind)), decoding.array(decode)
        if node["type"] == "map":
            kind, decode = self.of(node.get("values"), space, where)
            return pa.map_(pa.string(), kind), decoding.mapping(decode)
        if node["type"] in ("record", "enum", "fixed"):
            return self._name(node, space, where)
        return self._logical(node, self.of(node["type"], space, where), where)

    def _name(self, node: Mapping[str, Any], space: str, where: str) -> tuple[pa.DataType, Decode]:
        name = node["name"]
        if not isinstance(name, str):
            raise SchemaRefused(f"{where}: {name!r} is no name of a type")
        full = name
        if "." in name:
            space = name.rpartition(".")[0]
        else:
            space = node.get("namespace", space)
            full = f"{space}.{name}" if space else name
        if node["type"] == "record":
            found = self._fields(node, space, where)
        elif node["type"] == "enum":
            found = pa.string(), decoding.enum(_symbols(node, where))
        else:
            size = node["size"]
            if type(size) is not int or size < 1:
                raise SchemaRefused(f"{where}: {size!r} is no size of a fixed")
            found = self._logical(node, (pa.binary(), decoding.fixed(size)), where)
        self._named[full] = found
        return found

    def _fields(self, node: Mapping[str, Any], space: str, where: str) -> tuple[pa.DataType, Decode]:
        fields = {
            one["name"]: self.of(one["type"], space, f"field {one['name']!r}") for one in node["fields"]
        }
        if not fields:
            # Arrays of them could claim any number of items without a byte.
            raise SchemaRefused(f"{where}: a record without fields is no column")
        if len(fields) < len(node["fields"]) or not all(isinstance(name, str) for name in fields):
            raise SchemaRefused(f"{where}: two fields have the same name, or one has none")
        kinds = [(name, kind) for name, (kind, _) in fields.items()]
        return pa.struct(kinds), decoding.record({name: decode for name, (_, decode) in fields.items()})

    def _logical(
        self, node: Mapping[str, Any], base: tuple[pa.DataType, Decode], where: str
    ) -> tuple[pa.DataType, Decode]:
        """The logical type of ``node``, if there is a column for it; otherwise its ``base``."""
        logical = node.get("logicalType")
        if logical is not None and not isinstance(logical, str):
            raise SchemaRefused(f"{where}: {logical!r} is no logical type")
        if logical == "decimal" and node["type"] in ("bytes", "fixed"):
            precision, scale = node["precision"], node.get("scale", 0)
            if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision <= 38:
                raise SchemaRefused(
                    f"{where}: a decimal of {precision} digits, {scale} of them after the point, is no column"
                )
            return pa.decimal128(precision, scale), decoding.decimal(base[1], precision, scale)
        if logical == "uuid" and node["type"] == "fixed" and node["size"] == 16:
            return pa.string(), decoding.uuid(base[1])
        return _LOGICAL.get((node["type"], logical or ""), base)

    def _union(self, node: list[Any], space: str, where: str) -> tuple[pa.DataType, Decode]:
        """A union of null and one type is a column of that; one of several numbers of their widest.

        Otherwise it is a STRUCT of which one field is not null, as for Spark: member0, member1 and so on.
        """
        left = [one for one in node if one != "null"]
        if not left:
            raise SchemaRefused(f"{where}: a union of nothing but null is no column")
        found = [self.of(one, space, where) for one in left]
        plain = frozenset(one for one in left if isinstance(one, str))
        decodes: list[Decode] = [decode for _, decode in found]
        if len(left) == 1:
            kind = found[0][0]
        elif len(plain) == len(left) and plain in _WIDER:
            kind = _SIMPLE[_WIDER[plain]][0]
        else:
            kind = pa.struct([(f"member{place}", one) for place, (one, _) in enumerate(found)])
            decodes = [decoding.record({f"member{place}": one}) for place, one in enumerate(decodes)]
        members = iter(decodes)
        return kind, decoding.union([decoding.nothing if one == "null" else next(members) for one in node])


def _symbols(node: Mapping[str, Any], where: str) -> list[str]:
    symbols = node["symbols"]
    if not isinstance(symbols, list) or not symbols or not all(isinstance(one, str) for one in symbols):
        raise SchemaRefused(f"{where}: {symbols!r} are no symbols of an enum")
    return symbols
