"""Writes OTLP metrics as clients push them (KIP-714)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

Attribute = str | bool | int | float


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def tagged(field: int, data: bytes) -> bytes:
    """An embedded message or a string."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def attribute(field: int, key: str, value: Attribute) -> bytes:
    if isinstance(value, bool):
        of_value = b"\x10" + varint(value)
    elif isinstance(value, int):
        of_value = b"\x18" + varint(value % (1 << 64))
    elif isinstance(value, float):
        of_value = b"\x21" + struct.pack("<d", value)
    else:
        of_value = tagged(1, value.encode())
    return tagged(field, tagged(1, key.encode()) + tagged(2, of_value))


def number(value: float, attributes: Mapping[str, Attribute] | None = None) -> bytes:
    """A NumberDataPoint."""
    data = b"\x11" + bytes(8) + b"\x19" + struct.pack("<q", 5)
    data += (
        b"\x21" + struct.pack("<d", value) if isinstance(value, float) else b"\x31" + struct.pack("<q", value)
    )
    return data + b"".join(attribute(7, key, each) for key, each in (attributes or {}).items())


def gauge(name: str, *points: bytes) -> bytes:
    """A Metric."""
    return tagged(1, name.encode()) + tagged(5, b"".join(tagged(1, each) for each in points))


def summed(name: str, *points: bytes, monotonic: bool, delta: bool) -> bytes:
    """A Metric that is a sum; a monotonic one is a counter."""
    of_sum = b"".join(tagged(1, each) for each in points)
    of_sum += b"\x10" + varint(1 if delta else 2) + b"\x18" + varint(monotonic)
    return tagged(1, name.encode()) + tagged(7, of_sum)


def metrics_data(metrics: Sequence[bytes], resource: Mapping[str, Attribute] | None = None) -> bytes:
    """MetricsData with one resource and one scope."""
    of_resource = b"".join(attribute(1, key, value) for key, value in (resource or {}).items())
    scope = b"".join(tagged(2, each) for each in metrics)
    return tagged(1, tagged(1, of_resource) + tagged(2, scope))
