"""As much of a Protobuf value as is shown of it.

Two bytes of a value may be a message with hundreds of fields, which are shown even if they aren't set: a megabyte would
take gigabytes. So the bytes are walked by their schema first, without making anything of them, and cut where there is
more than enough. What is left is whole messages again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

_DEEPEST: Final = 100
"""Levels of messages, as in Protobuf's own parser."""
_LONGEST_NUMBER: Final = 10
_PER_LINE: Final = 4
"""Characters of a line beside names and values, or a little less."""
_PER_FIELD: Final = 0.25
"""What a field costs that is shown only if it is set: it takes some bytes of memory in each message."""
_VARINT, _FIXED64, _DELIMITED, _GROUP, _GROUP_END, _FIXED32 = range(6)
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
# Types of descriptor.proto by how they are written. Others are varints.
_WRITTEN: Final = {
    **dict.fromkeys((1, 6, 16), _FIXED64),
    **dict.fromkeys((2, 7, 15), _FIXED32),
    **dict.fromkeys((9, 11, 12), _DELIMITED),
    10: _GROUP,
}
_ENUM: Final = 14
_HIGH: Final = bytes(range(128, 256))
_ANY: Final = "google.protobuf.Any"


class MalformedError(ValueError):
    """The bytes are no message."""


class _Enough(Exception):
    """``at`` is where the value is cut."""

    def __init__(self, at: int) -> None:
        self.at = at


class _Level(NamedTuple):
    """A message or a packed field around the bytes that are walked: where its tag is, and what is in it."""

    tag_at: int
    tag: bytes
    at: int
    group_end: bytes | None


class Room:
    """How many characters of text the parts of a value may still take, about."""

    def __init__(self, most: int) -> None:
        self.left: float = most
        self.is_cut = False


class _Shape:
    """What is known of a type: its fields with what a value of each costs, and what a message without any costs."""

    def __init__(self, descriptor: Any) -> None:
        self.fields = {field.number: (field, _cost_of(field)) for field in descriptor.fields}
        self.of_empty = sum(
            _PER_FIELD if field.has_presence else len(field.name) + cost
            for field, cost in self.fields.values()
        )


class Types:
    """The message types of a schema, and how their values are parsed."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._shapes: dict[str, _Shape] = {}
        self._with_any: dict[str, bool] = {}

    def parse(self, name: str, data: bytes, room: Room, depth: int = 0) -> Any:
        """The message in ``data``, as much as there is room for. Raises KeyError, MalformedError, DecodeError.

        The messages in an Any are bytes to the parser, but they are shown: they are cut in the same way.
        """
        from google.protobuf.message_factory import GetMessageClass

        descriptor = self._pool.FindMessageTypeByName(name)
        message = GetMessageClass(descriptor)()
        message.ParseFromString(_Walk(data, self, room).beginning(descriptor))
        if self._may_have_any(descriptor):
            for each in _all_any(message):
                if depth > _DEEPEST:
                    raise MalformedError("it is nested too deeply")
                try:
                    below = self.parse(each.type_url.rpartition("/")[2], each.value, room, depth + 1)
                except KeyError:
                    continue
                each.value = below.SerializePartialToString()
        return message

    def shape(self, descriptor: Any) -> _Shape:
        name = descriptor.full_name
        found = self._shapes.get(name)
        if found is None:
            found = self._shapes[name] = _Shape(descriptor)
        return found

    def extension(self, descriptor: Any, number: int) -> tuple[Any, float]:
        """A field that the type itself hasn't got; None if no other file adds it."""
        if descriptor.is_extendable:
            try:
                field = self._pool.FindExtensionByNumber(descriptor, number)
            except KeyError:
                return None, _PER_LINE
            found = self.shape(descriptor).fields[number] = field, _cost_of(field)
            return found
        return None, _PER_LINE

    def _may_have_any(self, descriptor: Any) -> bool:
        """Whether messages of this type, or those in them, may be an Any."""
        name = descriptor.full_name
        if name not in self._with_any:
            self._with_any[name] = _reaches_any(descriptor)
        return self._with_any[name]


def _reaches_any(descriptor: Any) -> bool:
    known, left = {descriptor.full_name}, [descriptor]
    while left:
        each = left.pop()
        if each.full_name == _ANY or each.is_extendable:
            return True
        for field in each.fields:
            if field.message_type is not None and field.message_type.full_name not in known:
                known.add(field.message_type.full_name)
                left.append(field.message_type)
    return False


def _all_any(message: Any) -> Iterator[Any]:
    """The messages that are an Any, in a message and itself."""
    if message.DESCRIPTOR.full_name == _ANY:
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for each in value.values():
                    yield from _all_any(each)
        elif field.is_repeated:
            for each in value:
                yield from _all_any(each)
        else:
            yield from _all_any(value)


class _Walk:
    """Finds where a value is cut."""

    def __init__(self, data: bytes, types: Types, room: Room) -> None:
        self._data = data
        self._types = types
        self._room = room
        self._levels: list[_Level] = []

    def beginning(self, descriptor: Any) -> bytes:
        """All of the data, or the first of it. Raises MalformedError."""
        try:
            self._message(0, len(self._data), descriptor, None)
        except _Enough as enough:
            self._room.is_cut = True
            return self._cut(enough.at)
        return self._data

    def _cut(self, end: int) -> bytes:
        """What is before ``end``, in messages that end there."""
        made, end_of_outer = b"", end
        for level in reversed(self._levels):
            made = self._data[level.at : end_of_outer] + made
            if level.group_end is None:
                made = level.tag + _varint(len(made)) + made
            else:
                made = level.tag + made + level.group_end
            end_of_outer = level.tag_at
        return self._data[:end_of_outer] + made

    @contextmanager
    def _in(self, tag_at: int, tag: bytes, at: int, group_end: bytes | None = None) -> Iterator[None]:
        """Below, in a message. A cut leaves the levels as they are."""
        if len(self._levels) >= _DEEPEST:
            raise MalformedError("it is nested too deeply")
        self._levels.append(_Level(tag_at, tag, at, group_end))
        yield
        self._levels.pop()

    def _spend(self, cost: float, at: int) -> None:
        self._room.left -= cost
        if self._room.left < 0:
            raise _Enough(at)

    def _message(self, at: int, end: int, descriptor: Any, group: int | None) -> int:
        """Walk over a message's fields; gives where they end, for a group before its end's tag."""
        shape = None
        if descriptor is not None:
            shape = self._types.shape(descriptor)
            self._spend(shape.of_empty, at)
        while at < end:
            tag_at = at
            tag, at = self._number(at, end)
            number, wire = tag >> 3, tag & 7
            if wire == _GROUP_END and number == group:
                return tag_at
            field, cost = None, float(_PER_LINE)
            if shape is not None:
                field, cost = shape.fields.get(number) or self._types.extension(descriptor, number)
            self._spend(cost, tag_at)
            at = self._value(tag_at, at, end, field, number, wire)
        if group is not None:
            raise MalformedError("a group has no end")
        return at

    def _value(self, tag_at: int, at: int, end: int, field: Any, number: int, wire: int) -> int:
        """Walk over a field's value; gives where it ends."""
        data, tag = self._data, self._data[tag_at:at]
        if wire == _VARINT:
            return self._number(at, end)[1]
        if wire == _GROUP:
            below = field.message_type if field is not None and _WRITTEN.get(field.type) == _GROUP else None
            with self._in(tag_at, tag, at, _varint(number << 3 | _GROUP_END)):
                at = self._message(at, end, below, number)
            return self._number(at, end)[1]
        if wire == _DELIMITED:
            size, at = self._number(at, end)
            following = at + size
            if following > end:
                raise MalformedError("a field is longer than its message")
            if field is not None and field.type == 11:
                with self._in(tag_at, tag, at):
                    self._message(at, following, field.message_type, None)
            elif (
                field is not None
                and field.is_repeated
                and _WRITTEN.get(field.type)
                not in (
                    _DELIMITED,
                    _GROUP,
                )
            ):
                with self._in(tag_at, tag, at):
                    self._packed(at, following, field)
            return following
        if wire not in _SIZES or at + _SIZES[wire] > len(data) or at + _SIZES[wire] > end:
            raise MalformedError("a field is cut, or of no type of Protobuf's")
        return at + _SIZES[wire]

    def _packed(self, at: int, end: int, field: Any) -> None:
        """Many numbers in one field."""
        size = _SIZES.get(_WRITTEN.get(field.type, _VARINT), 0)
        payload = self._data[at:end]
        count = len(payload) // size if size else len(payload.translate(None, _HIGH))
        cost = _cost_of(field)
        room = int(max(0, self._room.left) / cost)
        if count > room:
            if size:
                raise _Enough(at + room * size)
            ends = (place for place, octet in enumerate(payload) if octet < 0x80)
            raise _Enough(at + next((place for index, place in enumerate(ends, 1) if index == room), -1) + 1)
        self._room.left -= count * cost

    def _number(self, at: int, end: int) -> tuple[int, int]:
        number = 0
        for shift in range(0, 7 * _LONGEST_NUMBER, 7):
            if at >= end:
                raise MalformedError("it ends within a number")
            octet = self._data[at]
            at += 1
            number |= (octet & 0x7F) << shift
            if octet < 0x80:
                return number, at
        raise MalformedError(f"a number has more than {_LONGEST_NUMBER} bytes")


def _cost_of(field: Any) -> float:
    """What one value of a field costs."""
    longest = 0
    if field.type == _ENUM:
        longest = max((len(each.name) for each in field.enum_type.values), default=0)
    return _PER_LINE + longest + (0 if field.is_repeated else len(field.name))


def _varint(number: int) -> bytes:
    octets = b""
    while number > 127:
        octets += bytes([number & 127 | 128])
        number >>= 7
    return octets + bytes([number])
