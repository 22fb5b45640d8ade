"""Numbers of Avro values that have more than 64 bits.

fastavro reads such a number without an error, and what is beyond 64 bits changes the others: eleven bytes may be 64.
Java refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

_NUMBER: Final = re.compile(rb"[\x80-\xff]{0,8}[\x00-\x7f]|[\x80-\xff]{9}[\x00\x01]").match
_LONGEST: Final = 10
"""Bytes of a number of 64 bits."""
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def suspects(values: pa.Array) -> frozenset[int]:
    """The rows that may have a number of more than 64 bits: nine bytes that each go on, and one that is too high.

    Text that isn't ASCII has such bytes, too.
    """
    if not len(values) or values.buffers()[2] is None:
        return frozenset()
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    found = np.frombuffer(values.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    if len(found) < _LONGEST:
        return frozenset()
    one = found >= 0x80
    two = one[:-1] & one[1:]
    four = two[:-2] & two[2:]
    eight = four[:-4] & four[4:]
    places = np.flatnonzero(eight[:-2] & one[8:-1] & (found[9:] > 1)) + offsets[0]
    rows = np.searchsorted(offsets, places, side="right") - 1
    return frozenset(np.unique(rows).tolist())


Skip = Callable[[bytes, int], int]
"""Returns where what begins at a place of a value ends. Raises ValueError."""


def checker(schema: Any, named: Mapping[str, Any]) -> Skip:
    """Make what goes through a value that fastavro can read, and refuses numbers of more than 64 bits.

    ``schema`` was parsed by fastavro, which put the schemas that it names into ``named``. None contains itself.
    """
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    if isinstance(schema, list):
        branches = [checker(each, named) for each in schema]

        def union(value: bytes, at: int) -> int:
            branch, at = _number(value, at)
            return branches[branch](value, at)

        return union
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return _record([checker(field["type"], named) for field in schema["fields"]])
    if kind == "array":
        return _items(checker(schema["items"], named))
    if kind == "map":
        return _items(_record([_sized, checker(schema["values"], named)]))
    if kind in ("string", "bytes"):
        return _sized
    if kind in ("int", "long", "enum"):
        return _end
    size = schema["size"] if kind == "fixed" else _SIZES[kind]
    return lambda value, at: at + size


def _record(fields: Sequence[Skip]) -> Skip:
    def record(value: bytes, at: int) -> int:
        for skip in fields:
            at = skip(value, at)
        return at

    return record


def _items(skip: Skip) -> Skip:
    def items(value: bytes, at: int) -> int:
        while True:
            count, at = _number(value, at)
            if not count:
                return at
            if count < 0:
                at = _end(value, at)  # the size of the block
            for _ in range(abs(count)):
                at = skip(value, at)

    return items


def _sized(value: bytes, at: int) -> int:
    size, at = _number(value, at)
    return at + size


def _end(value: bytes, at: int) -> int:
    found = _NUMBER(value, at)
    if found is None:
        raise ValueError("a number has more than 64 bits")
    return found.end()


def _number(value: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    number = value[at]
    end = at + 1
    if number >= 0x80:
        end = _end(value, at)
        number = 0
        for octet in reversed(value[at:end]):
            number = number << 7 | octet & 0x7F
    return (number >> 1) ^ -(number & 1), end
