"""Columns from a JSON Schema: the properties of an object, by their types.

Only a value's type counts: ``minimum``, ``pattern`` and the like are not checked. ``required`` makes a column NOT NULL.
Supports drafts 4 to 2020-12, with references within the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ottla_pipeline.landing.errors import SchemaRefused
from ottla_pipeline.landing.schema import TIMESTAMP, checked

_SIMPLE = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "string": pa.string()}
_FORMATS = {"date-time": TIMESTAMP, "date": pa.date32()}
_DEEPEST = 32


def from_json_schema(document: Mapping[str, Any]) -> pa.Schema:
    """The columns of the objects that ``document`` describes.

    Raises SchemaRefused if a property has no type of its own; the line says which.
    """
    fields = _fields(document, document, "the schema", 0)
    return checked(pa.schema(fields), "of JSON")


def _fields(node: Mapping[str, Any], root: Mapping[str, Any], where: str, depth: int) -> list[pa.Field]:
    if depth > _DEEPEST:
        raise SchemaRefused(
            f"{where}: nested more than {_DEEPEST} deep; a schema that contains itself is no table"
        )
    node, _ = _resolved(node, root, where)
    properties = node.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise SchemaRefused(f"{where}: an object needs properties to become columns")
    required = node.get("required", [])
    found = []
    for name, inner in properties.items():
        kind, nullable = _type(inner, root, f"property {name!r}", depth + 1)
        found.append(pa.field(str(name), kind, nullable or name not in required))
    return found


def _type(node: Any, root: Mapping[str, Any], where: str, depth: int) -> tuple[pa.DataType, bool]:
    """A property's type, and whether it may be null."""
    if not isinstance(node, Mapping):
        raise SchemaRefused(f"{where}: {node!r} says no type")
    node, nullable = _resolved(node, root, where)
    names = node.get("type")
    if names is None:
        names = _implied(node)
    names = [names] if isinstance(names, str) else list(names or [])
    nullable = nullable or "null" in names
    names = [name for name in names if name != "null"]
    if set(names) == {"integer", "number"}:
        names = ["number"]
    if len(names) != 1:
        raise SchemaRefused(f"{where}: one type is needed, {' or '.join(map(str, names)) or 'none'} is given")
    if names[0] == "object":
        return pa.struct(_fields(node, root, where, depth)), nullable
    if names[0] == "array":
        inner, _ = _type(node.get("items"), root, f"{where}, its items", depth + 1)
        return pa.list_(pa.field("element", inner)), nullable
    if names[0] == "string":
        return _FORMATS.get(str(node.get("format")), pa.string()), nullable
    if names[0] not in _SIMPLE:
        raise SchemaRefused(f"{where}: {names[0]!r} is no type of JSON Schema")
    return _SIMPLE[names[0]], nullable


def _resolved(node: Mapping[str, Any], root: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], bool]:
    """The node that references and a choice with null lead to; whether null was a choice."""
    nullable = False
    for _ in range(_DEEPEST):
        reference = node.get("$ref")
        choices = node.get("anyOf") or node.get("oneOf")
        if isinstance(reference, str):
            node = _at(reference, root, where)
        elif choices:
            left = [one for one in choices if one.get("type") != "null"]
            if len(left) != 1:
                raise SchemaRefused(f"{where}: a choice of {len(left)} types is no column")
            nullable = nullable or len(left) < len(choices)
            node = left[0]
        else:
            return node, nullable
    raise SchemaRefused(f"{where}: its references lead nowhere")


def _at(reference: str, root: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    found: Any = root
    if not reference.startswith("#"):
        raise SchemaRefused(f"{where}: {reference!r} is in another document; give one that holds everything")
    for part in reference.lstrip("#").strip("/").split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        found = found.get(part) if part and isinstance(found, Mapping) else found
    if not isinstance(found, Mapping):
        raise SchemaRefused(f"{where}: {reference!r} is not in the document")
    return found


def _implied(node: Mapping[str, Any]) -> str | None:
    if "properties" in node:
        return "object"
    if "items" in node:
        return "array"
    values = node.get("enum", [node["const"]] if "const" in node else [])
    if values and all(isinstance(one, str) for one in values):
        return "string"
    return None
