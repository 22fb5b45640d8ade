"""Avro schemas, parsed by fastavro, and values by them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .avro_values import write
from .decoding import SHOWN_BYTES, Shown, clean
from .registry import SchemaError

_DEEPEST: Final = 100
_SIMPLE: Final = ("boolean", "int", "long", "float", "double", "bytes", "string")


class AvroSchema:
    form: Final = "Avro"

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        """``references`` are texts of schemas, each after those that it needs itself. Raises SchemaError."""
        self._schema, self._named = parsed(text, references)

    def decode(self, data: bytes, *, framed: bool) -> Shown:
        """A value; a frame has nothing of Avro's own. Raises SchemaError."""
        try:
            text, is_cut, left = write(self._schema, self._named, data, SHOWN_BYTES)
        except RecursionError:
            raise SchemaError("the value is nested too deeply") from None
        except Exception as error:
            # Bytes that aren't of the schema: IndexError, EOFError, UnicodeDecodeError, …
            raise SchemaError(
                f"the value isn't of its schema: {type(error).__name__}: {error}"[:300]
            ) from None
        note = f"{left:,} bytes are left behind the value: it may have another schema" if left else ""
        if is_cut:
            note = f"the first {SHOWN_BYTES:,} characters"
        return Shown(clean(text), "Avro", note)


def parsed(text: object, references: Mapping[str, str] | None = None) -> tuple[Any, dict[str, Any]]:
    """An Avro schema, and those that it names. Raises SchemaError."""
    try:
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError:
        raise SchemaError("Avro needs the package fastavro: pip install 'ottla[web]'") from None
    try:
        schema = json.loads(str(text))
        others = [json.loads(each) for each in (references or {}).values()]
        sizes = _Sizes([*others, schema])
        for each in (*others, schema):
            _check(each, sizes)
        named: dict[str, Any] = {}
        for each in others:
            parse_schema(each, named)
        # fastavro looks for the schemas that a name means in the schema itself, which a mere name hasn't got.
        if isinstance(schema, str):
            schema = named.get(schema, schema)
        elif isinstance(schema, list):
            schema = [named.get(each, each) if isinstance(each, str) else each for each in schema]
        return parse_schema(schema, named), named
    except SchemaError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, SchemaParseException, UnknownType) as error:
        raise SchemaError(f"the schema isn't Avro's: {error}"[:300]) from None


def _check(schema: object, sizes: _Sizes) -> None:
    """Refuse arrays whose items have no bytes: a few bytes could then claim any number of items."""
    for each in _all_parts(schema):
        if isinstance(each, dict) and each.get("type") == "array" and not sizes.has_bytes(each.get("items")):
            raise SchemaError("the schema has arrays whose items may have no bytes")


def _all_parts(schema: object, depth: int = 0) -> Iterator[object]:
    """A schema and all that is in it. Raises SchemaError."""
    if depth > _DEEPEST:
        raise SchemaError("the schema is nested too deeply")
    yield schema
    for each in _parts(schema):
        yield from _all_parts(each, depth + 1)


def _parts(schema: object) -> Iterator[object]:
    if isinstance(schema, list):
        yield from schema
    elif isinstance(schema, dict):
        for name in ("type", "items", "values"):
            if isinstance(schema.get(name), (list, dict)):
                yield schema[name]
        fields = schema.get("fields", ())
        if isinstance(fields, list):
            yield from fields


class _Sizes:
    """The schemas that have at least one byte in every value. Names that nothing defines count as having none."""

    def __init__(self, schemas: list[object]) -> None:
        self._defined: dict[str, list[dict[str, Any]]] = {}
        self._known: dict[str, bool] = {}
        for schema in schemas:
            for each in _all_parts(schema):
                if isinstance(each, dict) and each.get("type") in ("record", "error", "enum", "fixed"):
                    name = str(each.get("name", "")).rpartition(".")[2]
                    self._defined.setdefault(name, []).append(each)

    def has_bytes(self, schema: object, depth: int = 0) -> bool:
        if depth > _DEEPEST:
            return False
        if isinstance(schema, list):  # a union writes the number of its branch
            return True
        if isinstance(schema, str):
            return schema in _SIMPLE or self._of_name(schema.rpartition(".")[2], depth)
        if not isinstance(schema, dict):
            return False
        kind = schema.get("type")
        if kind in ("array", "map", "enum"):
            return True
        if kind == "fixed":
            return isinstance(schema.get("size"), int) and schema["size"] > 0
        if kind in ("record", "error"):
            fields = schema.get("fields", ())
            return isinstance(fields, list) and any(
                isinstance(each, dict) and self.has_bytes(each.get("type"), depth + 1) for each in fields
            )
        return self.has_bytes(kind, depth + 1)

    def _of_name(self, name: str, depth: int) -> bool:
        """Whether all that have this name, whatever their namespaces, have bytes."""
        if name not in self._known:
            self._known[name] = False  # for a record inside itself
            defined = self._defined.get(name, [])
            self._known[name] = bool(defined) and all(self.has_bytes(each, depth + 1) for each in defined)
        return self._known[name]
