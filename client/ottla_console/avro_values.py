"""Avro values as JSON, written while they are read, and no further than is shown.

A value of a megabyte may mean gigabytes of text, of indentation alone. And a number may have as many bytes as the
value, while the time that Python takes for it grows with their square, and other threads wait.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from struct import unpack_from
from typing import Any, Final, NamedTuple

_LONGEST_NUMBER: Final = 10
"""Bytes of a varint of 64 bits."""
_LONGEST_DECIMAL: Final = 4096
"""Bytes of a decimal that is converted, which takes some milliseconds."""
_BYTES_OF_DIGIT: Final = 0.4153


class Written(NamedTuple):
    """A value's text. ``left`` are bytes behind the value; it is cut if there is more text."""

    text: str
    is_cut: bool
    left: int


class _Enough(Exception):
    """There is as much text as is shown."""


def write(schema: Any, named: Mapping[str, Any], data: bytes, most: int) -> Written:
    """The value at the start of ``data`` as JSON, at most ``most`` characters of it.

    ``schema`` was parsed by fastavro, which put the schemas that it names into ``named``. Raises whatever there is for
    bytes that aren't of the schema: ValueError, IndexError, EOFError, RecursionError, …
    """
    writer = _Writer(named, data, most)
    try:
        writer.value(schema, 0)
    except _Enough:
        return Written("".join(writer.parts)[:most], True, 0)
    return Written("".join(writer.parts), False, len(data) - writer.at)


def decimal_bytes(data: bytes, precision: int) -> bytes:
    """The bytes of a decimal, if they may be one of this precision. Raises ValueError.

    What is in front of as many as the precision needs has to repeat the sign.
    """
    most = min(int(precision * _BYTES_OF_DIGIT) + 2, _LONGEST_DECIMAL)
    if len(data) <= most:
        return data
    sign = b"\xff" if data[-most] & 0x80 else b"\0"
    if data[:-most].strip(sign):
        raise ValueError(f"a decimal of {precision:,} digits has {len(data):,} bytes")
    return data[-most:]


class _Writer:
    """One value, from bytes to text."""

    def __init__(self, named: Mapping[str, Any], data: bytes, most: int) -> None:
        from fastavro.read import LOGICAL_READERS

        self.at = 0
        self.parts: list[str] = []
        self._named = named
        self._data = data
        self._left = most
        self._logical = LOGICAL_READERS

    def _put(self, text: str) -> None:
        self.parts.append(text)
        self._left -= len(text)
        if self._left < 0:
            raise _Enough

    def value(self, schema: Any, depth: int) -> None:
        while True:
            if isinstance(schema, list):
                schema = schema[self._number()]
            elif isinstance(schema, str) and schema in self._named:
                schema = self._named[schema]
            else:
                break
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("record", "error"):
            self._record(schema["fields"], depth)
        elif kind in ("array", "map"):
            self._items(schema, depth, kind == "map")
        else:
            made = self._simple(kind, schema)
            if isinstance(schema, dict) and "logicalType" in schema:
                made = self._meant(made, f"{kind}-{schema['logicalType']}", schema)
            if made is not None and not isinstance(made, (str, int, float)):
                made = made.hex() if isinstance(made, bytes) else str(made)
            self._put(json.dumps(made, ensure_ascii=False))

    def _meant(self, made: Any, name: str, schema: Any) -> Any:
        """What a value of a logical type means."""
        reader = self._logical.get(name)
        if reader is None:
            return made
        if name in ("bytes-decimal", "fixed-decimal"):
            made = decimal_bytes(made, schema["precision"])
        return reader(made, schema, None)

    def _record(self, fields: Any, depth: int) -> None:
        between = "{"
        for field in fields:
            name = json.dumps(field["name"], ensure_ascii=False)
            self._put(f"{between}\n{'  ' * (depth + 1)}{name}: ")
            self.value(field["type"], depth + 1)
            between = ","
        self._put(f"\n{'  ' * depth}}}" if fields else "{}")

    def _items(self, schema: Mapping[str, Any], depth: int, is_map: bool) -> None:
        first, last = "{}" if is_map else "[]"
        below = schema["values" if is_map else "items"]
        between = first
        while count := self._number():
            if count < 0:
                count = -count
                self._number()  # the size of the block
            for _ in range(count):
                self._put(f"{between}\n{'  ' * (depth + 1)}")
                if is_map:
                    name = self._bytes(self._number()).decode()
                    self._put(f"{json.dumps(name, ensure_ascii=False)}: ")
                self.value(below, depth + 1)
                between = ","
        self._put(f"\n{'  ' * depth}{last}" if between == "," else first + last)

    def _simple(self, kind: str, schema: Any) -> Any:
        if kind in ("int", "long"):
            return self._number()
        if kind == "string":
            return self._bytes(self._number()).decode()
        if kind == "bytes":
            return self._bytes(self._number())
        if kind == "fixed":
            return self._bytes(schema["size"])
        if kind == "enum":
            return schema["symbols"][self._number()]
        if kind == "boolean":
            return self._bytes(1) != b"\0"
        if kind == "float":
            return unpack_from("<f", self._bytes(4))[0]
        if kind == "double":
            return unpack_from("<d", self._bytes(8))[0]
        if kind == "null":
            return None
        raise ValueError(f"the schema has a type {kind[:100]!r}")

    def _bytes(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if size < 0 or self.at > len(self._data):
            raise EOFError(f"Expected {size} bytes, {len(self._data) - start} are left")
        return self._data[start : self.at]

    def _number(self) -> int:
        number = 0
        for shift in range(0, 7 * _LONGEST_NUMBER, 7):
            if self.at >= len(self._data):
                raise EOFError("the value ends within a number")
            octet = self._data[self.at]
            self.at += 1
            number |= (octet & 0x7F) << shift
            if octet < 0x80:
                if number >> 64:
                    raise ValueError("a number has more than 64 bits")
                return (number >> 1) ^ -(number & 1)
        raise ValueError(f"a number has more than {_LONGEST_NUMBER} bytes")
