"""Every message in every version beside kafka-python 3: the same bytes out, the same values back."""

from __future__ import annotations

import random
import uuid
import warnings
from typing import Any

import pytest
from tests.protocol.samples import all_versions, sample

from ottla_protocol.layout import ARRAY, FIXED, STRUCT, FieldLayout, WireType, field_layouts
from ottla_protocol.schema import Message

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.consumer.metadata
    import kafka.protocol.metadata
    import kafka.protocol.producer
    from kafka.protocol.api_header import RequestHeader as TheirRequestHeader
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.schemas.fields.codecs import BitField

PACKAGES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.consumer.metadata,
    kafka.protocol.metadata,
    kafka.protocol.producer,
)

# kafka-python gives these another name, and a set of the bits that are on as their value.
OPERATIONS = ("topic_authorized_operations", "cluster_authorized_operations")


def their_class(name: str) -> Any:
    return next((getattr(package, name) for package in PACKAGES if hasattr(package, name)), None)


def shared_versions() -> list[Any]:
    found = []
    for cls, version in all_versions():
        theirs = their_class(cls.__name__)
        if theirs is None:
            continue
        newest = theirs.max_version if issubclass(theirs, ApiMessage) else cls.VERSIONS[1]
        if version <= newest:
            found.append(pytest.param(cls, version, theirs, id=f"{cls.__name__}-{version}"))
    return found


def their_field(declared: Any, name: str) -> Any:
    fields = declared.fields
    return fields["authorized_operations"] if name in OPERATIONS and name not in fields else fields[name]


def to_theirs(message: Any, declared: Any, version: int) -> dict[str, Any]:
    values = {}
    for layout in field_layouts(type(message), version):
        value = getattr(message, layout.field.name)
        if not layout.present or (layout.field.tag is not None and not is_set(layout, value)):
            continue
        theirs = their_field(declared, layout.field.name)
        values[theirs.name] = convert(value, layout.wire_type, theirs, version)
    return values


def is_set(layout: FieldLayout, value: Any) -> bool:
    factory = layout.field.default_factory
    return bool(value != (layout.field.default if factory is None else factory()))


def convert(value: Any, wire_type: WireType, theirs: Any, version: int) -> Any:
    if value is None:
        return None
    if wire_type.kind == ARRAY and wire_type.element.kind == STRUCT:
        return [theirs.data_class(version=version, **to_theirs(item, theirs, version)) for item in value]
    if wire_type.kind == STRUCT:
        return theirs.data_class(version=version, **to_theirs(value, theirs, version))
    if wire_type == WireType(FIXED, "16s"):
        return uuid.UUID(bytes=value)
    if getattr(theirs, "_type", None) is BitField:
        return None if value == -(2**31) else BitField.from_32_bit_field(value)
    return value


def check_equal(message: Any, theirs: Any, declared: Any, version: int) -> None:
    for layout in field_layouts(type(message), version):
        value = getattr(message, layout.field.name)
        if not layout.present or (layout.field.tag is not None and not is_set(layout, value)):
            continue
        field = their_field(declared, layout.field.name)
        other = getattr(theirs, field.name)
        if value is not None and layout.wire_type.kind == STRUCT:
            check_equal(value, other, field, version)
        elif value and layout.wire_type.kind == ARRAY and layout.wire_type.element.kind == STRUCT:
            assert len(value) == len(other)
            for mine, their in zip(value, other, strict=True):
                check_equal(mine, their, field, version)
        else:
            expected = convert(value, layout.wire_type, field, version)
            assert other == (bytes(expected) if isinstance(expected, memoryview) else expected), field.name


@pytest.mark.parametrize(("cls", "version", "theirs"), shared_versions())
def test_same_bytes_and_same_values(cls: type[Message], version: int, theirs: Any) -> None:
    rng = random.Random(f"{cls.__name__} {version}")
    for _ in range(4):
        message = sample(cls, version, rng)
        if hasattr(message, "error_code") and cls.__name__ == "ApiVersionsResponse":
            message.error_code = 0  # it reads any other answer as version 0
        encoded = message.encode(version)
        declared = theirs._struct
        values = to_theirs(message, declared, version)
        if issubclass(theirs, ApiMessage):
            assert theirs(version=version, **values).encode() == encoded
            check_equal(message, theirs.decode(encoded, version=version), declared, version)
        else:
            prefixed = version.to_bytes(2, "big") + encoded
            assert theirs(version=version, **values).encode() == prefixed
            check_equal(message, theirs.decode(prefixed), declared, version)
        assert cls.decode(encoded, version) == message


def test_the_whole_set_is_compared() -> None:
    names = {param.values[0].__name__ for param in shared_versions()}
    assert len(names) == 98
    assert len(shared_versions()) > 350
    assert TheirRequestHeader is not None
