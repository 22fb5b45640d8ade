"""Unsigned varints, and packers that compiled codecs share.

An unsigned varint has seven bits per byte, the lowest first, with the high bit set on every byte but the last. Flexible
versions (KIP-482) write a length plus one as a varint, so that zero is null. A tagged field is its tag and its size in
bytes, both varints, and its value.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, TypeAlias

from .errors import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview

SMALL = 16
"""Arrays with fewer numbers have a prepared Struct."""

MAX_STRING = 32767
"""The most bytes of a string, whose length was an int16 before flexible versions."""


def finish_uvarint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Finish a varint whose ``first`` byte (above 127) was read. Returns its value and end.

    Raises IndexError if the data ends, and ProtocolError if the value has more than 32 bits.
    """
    value = first & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFF_FFFF:
                raise ProtocolError(f"the varint before byte {position} is more than 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise ProtocolError(f"the varint before byte {position} is more than five bytes")


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Read the varint at ``position``. Returns its value and end; raises like ``finish_uvarint``."""
    first = data[position]
    if first < 128:
        return first, position + 1
    return finish_uvarint(data, position + 1, first)


def uvarint(value: int) -> bytes:
    """Encode a non-negative ``value`` as an unsigned varint."""
    if value < 128:
        return bytes((value,))
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_unpackers: dict[str, tuple[Callable[..., tuple[Any, ...]], ...]] = {}
_packers: dict[str, tuple[Callable[..., bytes], ...]] = {}


def array_unpackers(code: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """Return ``unpack_from`` for 0, 1, … SMALL - 1 numbers of the struct format ``code``."""
    if code not in _unpackers:
        _unpackers[code] = tuple(Struct(f">{count}{code}").unpack_from for count in range(SMALL))
    return _unpackers[code]


def array_packers(prefix: str, code: str) -> tuple[Callable[..., bytes], ...]:
    """Return ``pack`` for a length of format ``prefix`` and 0, 1, … SMALL - 1 numbers of format ``code``."""
    key = prefix + code
    if key not in _packers:
        _packers[key] = tuple(Struct(f">{prefix}{count}{code}").pack for count in range(SMALL))
    return _packers[key]
