"""Messages filled at random, by their own declarations, from a seeded generator."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import ottla_protocol.messages
from ottla_protocol.layout import ARRAY, BYTES, FIXED, RECORDS, STRING, WireType, field_layouts
from ottla_protocol.schema import Message, Struct

_INTEGERS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}
_ALPHABET = "abc-._09 é漢😀"


def message_classes() -> list[type[Message]]:
    """Every declared message, in the order of their names."""
    for package in ottla_protocol.messages.__path__:
        for path in sorted(Path(package).glob("*.py")):
            import_module(f"ottla_protocol.messages.{path.stem}")
    found = [cls for cls in Message.__subclasses__() if cls.__module__.startswith("ottla_protocol.messages.")]
    return sorted(found, key=lambda cls: cls.__name__)


def all_versions() -> Iterator[tuple[type[Message], int]]:
    for cls in message_classes():
        for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1):
            yield cls, version


def sample(cls: type[Struct], version: int, rng: random.Random) -> Any:
    """A ``cls`` whose fields are at random where ``version`` has them, and at their defaults elsewhere."""
    values = {}
    for layout in field_layouts(cls, version):
        if not layout.present or (layout.field.tag is not None and rng.random() < 0.3):
            continue
        if layout.nullable and rng.random() < 0.25:
            values[layout.field.name] = None
        else:
            values[layout.field.name] = _value(layout.wire_type, version, rng)
    return cls(**values)


def _value(wire_type: WireType, version: int, rng: random.Random) -> Any:
    if wire_type.kind == FIXED:
        return _fixed(wire_type.code, rng)
    if wire_type.kind == STRING:
        return "".join(rng.choices(_ALPHABET, k=_length(rng)))
    if wire_type.kind in (BYTES, RECORDS):
        return rng.randbytes(_length(rng))
    if wire_type.kind == ARRAY:
        count = rng.choice((0, 1, 1, 2, 3))
        if wire_type.element.kind == FIXED and rng.random() < 0.2:
            count = rng.choice((15, 16, 17, 126, 127, 200))
        return [_value(wire_type.element, version, rng) for _ in range(count)]
    return sample(wire_type.struct, version, rng)


def _length(rng: random.Random) -> int:
    return rng.choice((0, 1, 5, 5, 5, 12, 12, 62, 125, 126, 127, 128, 300))


def _fixed(code: str, rng: random.Random) -> Any:
    if code == "?":
        return rng.random() < 0.5
    if code == "16s":
        return rng.randbytes(16)
    if code == "d":
        return struct.unpack(">d", struct.pack(">d", rng.uniform(-1e9, 1e9)))[0]
    bits = _INTEGERS[code]
    lowest, highest = (0, 2**bits - 1) if code.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return rng.choice((lowest, highest, 0, 1, rng.randint(lowest, highest), rng.randint(0, 100)))
