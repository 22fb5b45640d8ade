"""Decodes Avro's binary form, strictly: what the specification doesn't allow is :class:`Malformed`.

Functions take a value's bytes and a place in them, and return what is there and the place after it. They raise
IndexError where the bytes end too early.
"""

from __future__ import annotations

import decimal as decimals
import struct
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla_pipeline.landing.parsing.malformed import Malformed, short

Decode = Callable[[bytes, int], tuple[Any, int]]

_BYTES_OF_DIGIT: Final = 0.4153
_EXACT: Final = decimals.Context(prec=100)


def nothing(value: bytes, at: int) -> tuple[None, int]:
    return None, at


def flag(value: bytes, at: int) -> tuple[bool, int]:
    if value[at] > 1:
        raise Malformed(f"a boolean is {value[at]}")
    return value[at] == 1, at + 1


def long(value: bytes, at: int) -> tuple[int, int]:
    """A number of 64 bits."""
    octet = value[at]
    at += 1
    if octet < 0x80:
        return (octet >> 1) ^ -(octet & 1), at
    number, shift = octet & 0x7F, 7
    while True:
        octet = value[at]
        at += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            break
        shift += 7
        if shift > 63:
            break
    if octet >= 0x80 or number >> 64:
        raise Malformed("a number has more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def whole(value: bytes, at: int) -> tuple[int, int]:
    """A number of 32 bits."""
    number, at = long(value, at)
    if not -0x8000_0000 <= number <= 0x7FFF_FFFF:
        raise Malformed(f"an int has more than 32 bits: {number}")
    return number, at


def millis(value: bytes, at: int) -> tuple[int, int]:
    """Milliseconds, as microseconds."""
    number, at = long(value, at)
    if not -(2**63) <= number * 1000 < 2**63:
        raise Malformed(f"a time of {number} ms is no TIMESTAMP: in microseconds it has more than 64 bits")
    return number * 1000, at


def octets(value: bytes, at: int) -> tuple[bytes, int]:
    size, at = long(value, at)
    if size < 0:
        raise Malformed(f"a size is {size}")
    end = at + size
    if end > len(value):
        raise IndexError
    return value[at:end], end


def text(value: bytes, at: int) -> tuple[str, int]:
    found, at = octets(value, at)
    try:
        return found.decode(), at
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8 text") from None


def number(form: str) -> Decode:
    """Floating point of the :mod:`struct` form."""
    read = struct.Struct(form)
    unpack, size = read.unpack_from, read.size

    def decode(value: bytes, at: int) -> tuple[float, int]:
        if at + size > len(value):
            raise IndexError
        return unpack(value, at)[0], at + size

    return decode


def fixed(size: int) -> Decode:
    def decode(value: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(value):
            raise IndexError
        return value[at:end], end

    return decode


def enum(symbols: Sequence[str]) -> Decode:
    def decode(value: bytes, at: int) -> tuple[str, int]:
        place, at = long(value, at)
        if not 0 <= place < len(symbols):
            raise Malformed(f"an enum has {len(symbols)} symbols, and the value is number {place}")
        return symbols[place], at

    return decode


def union(members: Sequence[Decode]) -> Decode:
    def decode(value: bytes, at: int) -> tuple[Any, int]:
        branch, at = long(value, at)
        if not 0 <= branch < len(members):
            raise Malformed(f"a union has {len(members)} types, and the value is of number {branch}")
        return members[branch](value, at)

    return decode


def record(fields: Mapping[str, Decode]) -> Decode:
    pairs = tuple(fields.items())

    def decode(value: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = {}
        for name, field in pairs:
            found[name], at = field(value, at)
        return found, at

    return decode


def array(item: Decode) -> Decode:
    def decode(value: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, at = long(value, at)
            if not count:
                return found, at
            if count < 0:
                _, at = long(value, at)  # the block's size in bytes
            # No item is without a byte, so this ends.
            for _ in range(abs(count)):
                one, at = item(value, at)
                found.append(one)

    return decode


def mapping(values: Decode) -> Decode:
    pairs = array(lambda value, at: _pair(value, at, values))

    def decode(value: bytes, at: int) -> tuple[list[tuple[str, Any]], int]:
        found, at = pairs(value, at)
        if len({key for key, _ in found}) < len(found):
            raise Malformed("a map has a key twice")
        return found, at

    return decode


def _pair(value: bytes, at: int, values: Decode) -> tuple[tuple[str, Any], int]:
    key, at = text(value, at)
    found, at = values(value, at)
    return (key, found), at


def decimal(base: Decode, precision: int, scale: int) -> Decode:
    """A decimal that has the digits of its precision at most.

    The time for converting one grows with the square of its size: in front of as many bytes as the precision needs is
    nothing but the sign.
    """
    longest = int(precision * _BYTES_OF_DIGIT) + 2
    most = 10**precision

    def decode(value: bytes, at: int) -> tuple[decimals.Decimal, int]:
        data, at = base(value, at)
        size = len(data)
        if size > longest:
            sign = b"\xff" if data[-longest] & 0x80 else b"\0"
            if data[:-longest].strip(sign):
                raise Malformed(f"a decimal of {precision} digits has {size:,} bytes")
            data = data[-longest:]
        unscaled = int.from_bytes(data, "big", signed=True)
        if not -most < unscaled < most:
            raise Malformed(
                f"a decimal of {precision} digits is {short(str(unscaled))}, of which {scale} are a fraction"
            )
        return decimals.Decimal(unscaled).scaleb(-scale, _EXACT), at

    return decode


def uuid(base: Decode) -> Decode:
    def decode(value: bytes, at: int) -> tuple[str, int]:
        data, at = base(value, at)
        return str(uuids.UUID(bytes=data)), at

    return decode
