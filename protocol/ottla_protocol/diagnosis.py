"""Finds the value of a message that its encoder failed on."""

from __future__ import annotations

from struct import Struct as Packer
from struct import error as StructError
from typing import Any

from .fields import Struct
from .layout import ARRAY, BYTES, FIXED, STRING, STRUCT, WireType, field_layouts
from .primitives import MAX_STRING


def fault(message: Struct, version: int) -> str | None:
    """Return the path of the first value that ``version`` can't carry, and the problem."""
    return _struct_fault(message, type(message), version, "")


def _struct_fault(value: Any, cls: type[Any], version: int, path: str) -> str | None:
    for layout in field_layouts(cls, version):
        if not layout.present:
            continue
        inner = f"{path}.{layout.field.name}" if path else layout.field.name
        found = _fault(getattr(value, layout.field.name), layout.wire_type, layout.nullable, version, inner)
        if found is not None:
            return found
    return None


def _fault(value: Any, wire_type: WireType, nullable: bool, version: int, path: str) -> str | None:
    if value is None:
        return None if nullable else f"{path} may not be None"
    try:
        if wire_type.kind == FIXED:
            Packer(">" + wire_type.code).pack(value)
        elif wire_type.kind == STRING:
            if len(value.encode()) > MAX_STRING:
                return f"{path} is more than {MAX_STRING} bytes long"
        elif wire_type.kind == ARRAY:
            for index, element in enumerate(value):
                found = _fault(element, wire_type.element, False, version, f"{path}[{index}]")
                if found is not None:
                    return found
        elif wire_type.kind == STRUCT:
            if not isinstance(value, wire_type.struct):
                return f"{path} is not a {wire_type.struct.__name__} but {value!r}"
            return _struct_fault(value, wire_type.struct, version, path)
        elif wire_type.kind == BYTES:
            memoryview(value)
        else:
            len(value)
    except (AttributeError, StructError, TypeError, ValueError) as error:
        return f"{path}: {error}"
    return None
