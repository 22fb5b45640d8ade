"""Says which value of a message could not be encoded, once the encoder has failed."""

from __future__ import annotations

from struct import Struct as Packer
from struct import error as StructError
from typing import Any

from .layout import ARRAY, BYTES, FIXED, STRING, STRUCT, Shape, places
from .primitives import MAX_STRING
from .schema import Message


def fault(message: Message, version: int) -> str | None:
    """The path of the first value that ``version`` cannot carry, and what is wrong with it."""
    return _struct_fault(message, type(message), version, "")


def _struct_fault(value: Any, cls: type[Any], version: int, path: str) -> str | None:
    for place in places(cls, version):
        if not place.present:
            continue
        inner = f"{path}.{place.field.name}" if path else place.field.name
        found = _fault(getattr(value, place.field.name), place.shape, place.nullable, version, inner)
        if found is not None:
            return found
    return None


def _fault(value: Any, shape: Shape, nullable: bool, version: int, path: str) -> str | None:
    if value is None:
        return None if nullable else f"{path} may not be None"
    try:
        if shape.kind == FIXED:
            Packer(">" + shape.code).pack(value)
        elif shape.kind == STRING:
            if len(value.encode()) > MAX_STRING:
                return f"{path} is more than {MAX_STRING} bytes long"
        elif shape.kind == ARRAY:
            for index, element in enumerate(value):
                found = _fault(element, shape.element, False, version, f"{path}[{index}]")
                if found is not None:
                    return found
        elif shape.kind == STRUCT:
            if not isinstance(value, shape.struct):
                return f"{path} is no {shape.struct.__name__} but {value!r}"
            return _struct_fault(value, shape.struct, version, path)
        elif shape.kind == BYTES:
            memoryview(value)
        else:
            len(value)
    except (AttributeError, StructError, TypeError, ValueError) as error:
        return f"{path}: {error}"
    return None
