"""Messages beside aiokafka's hand-written schemas: the same bytes out, the same values back.

Its structures are positional, so a message becomes a tuple of its fields in wire order.
"""

from __future__ import annotations

import random
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.types import Array, Schema, TaggedFields
from tests.protocol.samples import all_versions, sample

from ottla_protocol.layout import ARRAY, STRUCT, field_layouts
from ottla_protocol.schema import Message

# Not compared: ListOffsets 4 and 5, which it declares with an int64 epoch and never sends; CreatePartitions,
# whose count and assignments it nests; DescribeAcls 2, which it doesn't encode as flexible. They are compared with
# kafka-python's.
EXCLUDED = {(2, True, 4), (2, True, 5), (37, True, 0), (37, True, 1), (29, True, 2), (29, False, 2)}

MODULES = (
    "admin",
    "commit",
    "coordination",
    "fetch",
    "group",
    "metadata",
    "offset",
    "produce",
    "transaction",
)


def their_classes() -> dict[tuple[int, bool, int], Any]:
    """By API key, whether it is a request, and version."""
    found = {}
    for name in MODULES:
        for cls in vars(import_module(f"aiokafka.protocol.{name}")).values():
            if isinstance(cls, type) and isinstance(getattr(cls, "SCHEMA", None), Schema):
                key = getattr(cls, "API_KEY", None)
                if key is not None:
                    found[key, "Request" in cls.__name__, cls.API_VERSION] = cls
    return found


def shared_versions() -> list[Any]:
    theirs = their_classes()
    found = []
    for cls, version in all_versions():
        other = (
            theirs.get((cls.API_KEY, "Request" in cls.__name__, version)) if cls.API_KEY is not None else None
        )
        if other is not None and (cls.API_KEY, "Request" in cls.__name__, version) not in EXCLUDED:
            found.append(pytest.param(cls, version, other.SCHEMA, id=f"{cls.__name__}-{version}"))
    return found


def positional(message: Any, schema: Any, version: int) -> tuple[Any, ...]:
    """The fields of ``message``; aiokafka has the bare value where a struct has but one."""
    values: list[Any] = []
    types = list(schema.fields) if isinstance(schema, Schema) else [schema]
    for layout in field_layouts(type(message), version):
        if not layout.present or layout.field.tag is not None:
            continue
        value = getattr(message, layout.field.name)
        theirs = types[len(values)]
        if value is not None and layout.wire_type.kind == ARRAY and layout.wire_type.element.kind == STRUCT:
            assert isinstance(theirs, Array)
            inner = theirs.array_of
            value = [
                item if isinstance(inner, Schema) else item[0]
                for item in (positional(item, inner, version) for item in value)
            ]
        elif isinstance(value, memoryview):
            value = bytes(value)
        values.append(value)
    if len(types) == len(values) + 1:
        assert types[-1] is TaggedFields
        values.append({})
    assert len(types) == len(values)
    return tuple(values)


def without_tags(message: Any) -> Any:
    for declared in type(message).FIELDS:
        value = getattr(message, declared.name)
        if declared.tag is not None:
            factory = declared.default_factory
            setattr(message, declared.name, declared.default if factory is None else factory())
        elif isinstance(value, list):
            for item in value:
                if hasattr(item, "FIELDS"):
                    without_tags(item)
    return message


@pytest.mark.parametrize(("cls", "version", "schema"), shared_versions())
def test_same_bytes_and_same_values(cls: type[Message], version: int, schema: Schema) -> None:
    rng = random.Random(f"{cls.__name__} {version}")
    for _ in range(4):
        message = without_tags(sample(cls, version, rng))
        encoded = message.encode(version)
        values = positional(message, schema, version)
        assert schema.encode(values) == encoded
        assert schema.decode(BytesIO(encoded)) == values
        assert cls.decode(encoded, version) == message


def test_enough_is_compared() -> None:
    assert len(shared_versions()) > 80
