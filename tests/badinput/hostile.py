"""Builds, for each array in a request's declaration, the request that has the most elements there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import pack
from typing import Any, Final

from ottla_protocol.header import RequestHeader, encode_request_header
from ottla_protocol.layout import (
    ARRAY,
    BYTES,
    FIXED,
    STRING,
    STRUCT,
    WireType,
    element_cost,
    field_layouts,
)
from ottla_protocol.primitives import uvarint
from ottla_protocol.registry import request_class
from ottla_protocol.schema import Message, Struct

_NAME: Final = "name##"
_NUMBER: Final = 0x7A7A7A7A
_HARMLESS: Final = {"validate_only": True, "allow_auto_topic_creation": False, "acks": -1}
_ZEROS: Final = {"16s": bytes(16), "?": False}


@dataclass(frozen=True)
class Attack:
    """An array of a request, by the names of the fields on the way to it.

    ``given``: values of the request's own fields.
    """

    key: int
    version: int
    path: tuple[str, ...]
    cost: int
    given: tuple[tuple[str, Any], ...] = ()

    def request(self, count: int) -> bytes:
        """The request, without its size, with ``count`` elements, all different."""
        few, more = self._encoded(2), self._encoded(3)
        at = next(i for i, (one, other) in enumerate(zip(few, more, strict=False)) if one != other)
        element_size = len(more) - len(few)
        flexible = _is_flexible(self.key, self.version)
        # The last byte of an int32, or all of a short varint.
        start, after = (at, at + 1) if flexible else (at - 3, at + 1)
        element = few[after : after + element_size]
        head = encode_request_header(RequestHeader(self.key, self.version, 7, "hostile"))
        length = uvarint(count + 1) if flexible else pack(">i", count)
        rest = few[after + 2 * element_size :]
        return head + few[:start] + length + b"".join(_different(element, count)) + rest

    def _encoded(self, count: int) -> bytes:
        message = request_class(self.key, self.version)()
        _fill(message, self.version)
        fields = {each.field.name for each in field_layouts(type(message), self.version) if each.present}
        for name, value in self.given:
            if name in fields:
                setattr(message, name, value)
        _put(message, self.path, self.version, count)
        return message.encode(self.version)


def attacks(key: int, version: int, **given: Any) -> Iterator[Attack]:
    """One attack for each array of a version of a request. ``given``: values of the request's own fields."""
    for path, element in _arrays(request_class(key, version), version):
        yield Attack(key, version, path, element_cost(element, version), tuple(given.items()))


def _arrays(cls: type[Struct], version: int) -> Iterator[tuple[tuple[str, ...], WireType]]:
    for layout in field_layouts(cls, version):
        if not layout.present or layout.field.tag is not None:
            continue
        name, wire_type = layout.field.name, layout.wire_type
        if wire_type.kind == ARRAY:
            yield (name,), wire_type.element
            if wire_type.element.kind == STRUCT:
                for path, element in _arrays(wire_type.element.struct, version):
                    yield (name, *path), element


def _fill(target: Struct, version: int) -> None:
    """Give names and numbers that :func:`_different` replaces."""
    for layout in field_layouts(type(target), version):
        name, wire_type = layout.field.name, layout.wire_type
        if not layout.present or layout.field.tag is not None:
            continue
        if name in _HARMLESS:
            setattr(target, name, _HARMLESS[name])
        elif wire_type.kind in (STRING, BYTES, FIXED, ARRAY):
            setattr(target, name, _value(wire_type, version))


def _value(wire_type: WireType, version: int) -> Any:
    if wire_type.kind == STRUCT:
        made = wire_type.struct()
        _fill(made, version)
        return made
    if wire_type.kind == FIXED:
        return _NUMBER if wire_type.code == "i" else _ZEROS.get(wire_type.code, 0)
    return {STRING: _NAME, BYTES: b"", ARRAY: []}.get(wire_type.kind, b"")


def _put(target: Struct, path: tuple[str, ...], version: int, count: int) -> None:
    layout = next(each for each in field_layouts(type(target), version) if each.field.name == path[0])
    element = layout.wire_type.element
    if len(path) == 1:
        setattr(target, path[0], [_value(element, version) for _ in range(count)])
        return
    outer = _value(element, version)
    _put(outer, path[1:], version, count)
    setattr(target, path[0], [outer])


def _different(element: bytes, count: int) -> Iterator[bytes]:
    name, number = _NAME.encode(), pack(">i", _NUMBER)
    for each in range(count):
        yield element.replace(name, b"%06d" % each).replace(number, pack(">i", each))


def _is_flexible(key: int, version: int) -> bool:
    cls: type[Message] = request_class(key, version)
    return cls.FLEXIBLE is not None and version >= cls.FLEXIBLE
