"""The layout of a declared class on the wire in one version, for both code generators."""

from __future__ import annotations

import sys
from struct import calcsize
from typing import Any, NamedTuple

from .fields import Field, Struct

FIXED, STRING, BYTES, RECORDS, ARRAY, STRUCT = "fixed", "string", "bytes", "records", "array", "struct"

_NAMED = {
    "Int8": (FIXED, "b"),
    "Int16": (FIXED, "h"),
    "UInt16": (FIXED, "H"),
    "Int32": (FIXED, "i"),
    "UInt32": (FIXED, "I"),
    "Int64": (FIXED, "q"),
    "Float64": (FIXED, "d"),
    "Bool": (FIXED, "?"),
    "Uuid": (FIXED, "16s"),
    "String": (STRING, ""),
    "Bytes": (BYTES, ""),
    "Records": (RECORDS, ""),
}


class WireType(NamedTuple):
    """A type on the wire."""

    kind: str
    code: str = ""
    """The struct format of a fixed type."""
    element: Any = None
    """The WireType of an array's elements."""
    struct: Any = None
    """The class of a struct."""


class FieldLayout(NamedTuple):
    """A field in one version of its class."""

    field: Field
    wire_type: WireType
    present: bool
    nullable: bool


def field_layouts(cls: type[Struct], version: int) -> list[FieldLayout]:
    """Return the fields of ``cls`` in wire order, including fields that ``version`` lacks."""
    found = []
    for declared in cls.FIELDS:
        annotation, _, null = declared.annotation.partition(" | ")
        first, last = declared.versions
        lowest, highest = declared.nullable
        nullable = bool(null) and lowest <= version <= highest
        found.append(FieldLayout(declared, _wire_type(annotation, cls), first <= version <= last, nullable))
    return found


def _wire_type(annotation: str, owner: type[Struct]) -> WireType:
    if annotation.startswith("list["):
        return WireType(ARRAY, element=_wire_type(annotation[5:-1], owner))
    named = _NAMED.get(annotation)
    if named is not None:
        return WireType(*named)
    return WireType(STRUCT, struct=getattr(sys.modules[owner.__module__], annotation))


def min_size(wire_type: WireType, version: int, flexible: bool) -> int:
    """Return the fewest bytes of a value that is not null, which bounds a false array length."""
    if wire_type.kind == FIXED:
        return calcsize(">" + wire_type.code)
    if wire_type.kind != STRUCT:
        if flexible:
            return 1
        return 2 if wire_type.kind == STRING else 4
    size = 1 if flexible else 0
    for layout in field_layouts(wire_type.struct, version):
        if layout.present and layout.field.tag is None:
            size += (
                1
                if layout.nullable and layout.wire_type.kind == STRUCT
                else min_size(layout.wire_type, version, flexible)
            )
    return size


_OBJECT = 128
_NUMBER = 64
_FIELD = {FIXED: 32, STRING: 56, BYTES: 56, RECORDS: 200, ARRAY: 64}


def element_cost(wire_type: WireType, version: int) -> int:
    """Return about how many bytes of memory one element of an array takes, with what is made to answer it."""
    if wire_type.kind == FIXED:
        return _NUMBER
    if wire_type.kind != STRUCT:
        return _OBJECT + _FIELD[wire_type.kind]
    return _OBJECT + sum(
        element_cost(layout.wire_type, version)
        if layout.wire_type.kind == STRUCT
        else _FIELD[layout.wire_type.kind]
        for layout in field_layouts(wire_type.struct, version)
        if layout.present
    )


def has_records(cls: type[Struct], version: int) -> bool:
    """Whether this version contains a ``Records`` field anywhere."""
    for layout in field_layouts(cls, version):
        wire_type = layout.wire_type.element if layout.wire_type.kind == ARRAY else layout.wire_type
        if layout.present and (
            wire_type.kind == RECORDS or (wire_type.kind == STRUCT and has_records(wire_type.struct, version))
        ):
            return True
    return False


class Source:
    """Python source under construction, and the objects behind its names."""

    def __init__(self, depth: int, scope: dict[str, Any]) -> None:
        self.depth = depth
        self.scope = scope
        self.lines: list[str] = []
        self._names: dict[Any, str] = {}
        self._fresh = 0

    def line(self, text: str) -> None:
        self.lines.append(" " * self.depth + text)

    def fresh(self, prefix: str) -> str:
        self._fresh += 1
        return f"{prefix}{self._fresh}"

    def bind(self, prefix: str, key: Any, value: Any) -> str:
        """Return the name of ``value`` in the source, the same one for the same ``key``."""
        name = self._names.get((prefix, key))
        if name is None:
            name = self._names[prefix, key] = self.fresh(prefix)
            self.scope[name] = value
        return name

    def text(self) -> str:
        return "\n".join(self.lines or [" " * self.depth + "pass"])
