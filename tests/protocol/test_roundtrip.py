"""Every message in every version round-trips, and truncated ones are refused."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.samples import all_versions, message_classes, sample
from tests.support.depth import examples

from ottla_protocol.errors import ProtocolError
from ottla_protocol.layout import ARRAY, BYTES, FIXED, RECORDS, STRING, FieldLayout, WireType, field_layouts
from ottla_protocol.schema import Message, Struct

NUMBERS = {
    "b": st.integers(-(2**7), 2**7 - 1),
    "h": st.integers(-(2**15), 2**15 - 1),
    "H": st.integers(0, 2**16 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "I": st.integers(0, 2**32 - 1),
    "q": st.integers(-(2**63), 2**63 - 1),
    "d": st.floats(allow_nan=False),
    "?": st.booleans(),
    "16s": st.binary(min_size=16, max_size=16),
}


@cache
def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    present = [layout for layout in field_layouts(cls, version) if layout.present]
    return st.builds(cls, **{layout.field.name: values(layout, version) for layout in present})


def values(layout: FieldLayout, version: int) -> st.SearchStrategy[Any]:
    strategy = wire_types(layout.wire_type, version)
    return st.none() | strategy if layout.nullable else strategy


def wire_types(wire_type: WireType, version: int) -> st.SearchStrategy[Any]:
    if wire_type.kind == FIXED:
        return NUMBERS[wire_type.code]
    if wire_type.kind == STRING:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    if wire_type.kind in (BYTES, RECORDS):
        return st.binary(max_size=20)
    if wire_type.kind == ARRAY:
        return st.lists(wire_types(wire_type.element, version), max_size=3)
    return structs(wire_type.struct, version)


@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
@settings(max_examples=examples(6), deadline=None)
@given(data=st.data())
def test_messages_round_trip(cls: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.integers(*cls.VERSIONS), label="version")
    message = data.draw(structs(cls, version), label="message")
    encoded = message.encode(version)
    assert cls.decode(encoded, version) == message
    padded = b"\x01\x02\x03" + encoded + b"trailing"
    for buffer in (padded, bytearray(padded), memoryview(padded)):
        assert cls.decode_from(buffer, version, 3) == (message, 3 + len(encoded))
    assert b"".join(message.encode_parts(version)) == encoded


@pytest.mark.parametrize(
    ("cls", "version"), [pytest.param(*each, id=f"{each[0].__name__}-{each[1]}") for each in all_versions()]
)
def test_a_truncated_message_is_refused(cls: type[Message], version: int) -> None:
    rng = random.Random(f"cut {cls.__name__} {version}")
    assert cls.decode(cls().encode(version), version) == cls()
    most = examples(150)
    for _ in range(2):
        encoded = sample(cls, version, rng).encode(version)
        cuts = range(len(encoded)) if len(encoded) <= most else sorted(rng.sample(range(len(encoded)), most))
        for cut in cuts:
            with pytest.raises(ProtocolError):
                cls.decode(encoded[:cut], version)


@pytest.mark.parametrize(
    ("cls", "version"), [pytest.param(*each, id=f"{each[0].__name__}-{each[1]}") for each in all_versions()]
)
def test_a_damaged_message_is_read_or_refused(cls: type[Message], version: int) -> None:
    rng = random.Random(f"damage {cls.__name__} {version}")
    encoded = sample(cls, version, rng).encode(version) or b"\x00"
    for _ in range(examples(15)):
        damaged = bytearray(encoded)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        try:
            message, end = cls.decode_from(damaged, version)
        except ProtocolError:
            continue
        assert end <= len(damaged)
        assert cls.decode(message.encode(version), version) == message
