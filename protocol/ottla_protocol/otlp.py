"""Reads OTLP MetricsData, the protobuf message in which clients push their metrics (KIP-714).

::

    MetricsData      1: ResourceMetrics*
    ResourceMetrics  1: Resource   2: ScopeMetrics*
    Resource         1: KeyValue*
    ScopeMetrics     2: Metric*
    Metric           1: name   5: Gauge   7: Sum
    Gauge            1: NumberDataPoint*
    Sum              1: NumberDataPoint*   2: temporality (1 delta, 2 cumulative)   3: is monotonic
    NumberDataPoint  4: double   6: sfixed64   7: KeyValue*
    KeyValue         1: key   2: AnyValue
    AnyValue         1: string   2: bool   3: int64   4: double

Other fields are passed over, and so are histograms and summaries, which no client of Kafka pushes. Nothing of the
message is trusted: lengths are checked against what there is, and points are bounded by the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from .errors import ProtocolError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA: Final = 1
_MOST_ATTRIBUTES: Final = 32
_FEW_FIELDS: Final = 10_000
"""Fields that a message of any size may have."""
_BYTES_A_FIELD: Final = 6
_BETWEEN: Final = 500
_DOUBLE: Final = struct.Struct("<d")
_INTEGER: Final = struct.Struct("<q")

Value = int | bytes | memoryview


class Point(NamedTuple):
    """One number of a metric.

    Attributes:
        is_counter: it only goes up; ``is_delta``: the value is what came since the push before.
        attributes: its own, which tell it from the metric's other points.
    """

    name: str
    value: float
    is_counter: bool
    is_delta: bool
    attributes: tuple[tuple[str, str], ...]


class Pushed(NamedTuple):
    """The contents of a push. ``resource``: attributes of the client. ``left_out``: points beyond the bound."""

    resource: tuple[tuple[str, str], ...]
    points: list[Point]
    left_out: int


def read_metrics(
    data: bytes | memoryview, most_points: int, between: Callable[[], None] = lambda: None
) -> Pushed:
    """Decode MetricsData; ``between`` is called after each few hundred fields, a millisecond's work.

    Raises ProtocolError for bytes that aren't such a message, or that have more fields than clients' metrics.
    """
    return _Reader(len(data), between).read(memoryview(data), most_points)


class _Reader:
    def __init__(self, size: int, between: Callable[[], None]) -> None:
        # Fields of no bytes keep a processor for seconds. Those of real metrics have ten bytes and more.
        self._left = max(_FEW_FIELDS, size // _BYTES_A_FIELD)
        self._between = between

    def read(self, data: memoryview, most_points: int) -> Pushed:
        resource: tuple[tuple[str, str], ...] = ()
        points: list[Point] = []
        left_out = 0
        for _, of_resource in self._messages(data, 1):
            for field, part in self._messages(of_resource, 1, 2):
                if field == 1:
                    resource = self._attributes(pair for _, pair in self._messages(part, 1))
                    continue
                for _, metric in self._messages(part, 2):
                    for point in self._points(metric):
                        if len(points) < most_points:
                            points.append(point)
                        else:
                            left_out += 1
        return Pushed(resource, points, left_out)

    def _points(self, metric: memoryview) -> Iterator[Point]:
        name = ""
        data: list[tuple[int, memoryview]] = []
        for field, part in self._messages(metric, 1, 5, 7):
            if field == 1:
                name = _text(part)
            else:
                data.append((field, part))
        for field, part in data:
            temporality, monotonic = 0, False
            found: list[memoryview] = []
            for inner, wire, value in self._fields(part):
                if inner == 1 and wire == _BYTES:
                    assert isinstance(value, memoryview)
                    found.append(value)
                elif inner == 2 and wire == _VARINT:
                    temporality = _number(value)
                elif inner == 3 and wire == _VARINT:
                    monotonic = bool(value)
            for each in found:
                number, attributes = self._data_point(each)
                if number is not None:
                    is_counter = field == 7 and monotonic
                    yield Point(name, number, is_counter, field == 7 and temporality == _DELTA, attributes)

    def _data_point(self, data: memoryview) -> tuple[float | None, tuple[tuple[str, str], ...]]:
        number: float | None = None
        pairs: list[memoryview] = []
        for field, wire, value in self._fields(data):
            if wire == _FIXED64 and isinstance(value, bytes):
                if field == 4:
                    number = _DOUBLE.unpack(value)[0]
                elif field == 6:
                    number = _INTEGER.unpack(value)[0]
            elif wire == _BYTES and field == 7 and isinstance(value, memoryview):
                pairs.append(value)
        return number, self._attributes(pairs)

    def _attributes(self, pairs: Iterable[memoryview]) -> tuple[tuple[str, str], ...]:
        """Keys and values as text, sorted; a key that comes twice has its last value."""
        found: dict[str, str] = {}
        for pair in pairs:
            key, text = "", ""
            for inner, part in self._messages(pair, 1, 2):
                if inner == 1:
                    key = _text(part)
                else:
                    text = self._any_value(part)
            if key and len(found) < _MOST_ATTRIBUTES:
                found[key] = text
        return tuple(sorted(found.items()))

    def _any_value(self, data: memoryview) -> str:
        for field, wire, value in self._fields(data):
            if field == 1 and wire == _BYTES:
                assert isinstance(value, memoryview)
                return _text(value)
            if field == 2 and wire == _VARINT:
                return "true" if value else "false"
            if field == 3 and wire == _VARINT:
                number = _number(value)
                return str(number - (1 << 64) if number >= 1 << 63 else number)
            if field == 4 and wire == _FIXED64:
                assert isinstance(value, bytes)
                return repr(_DOUBLE.unpack(value)[0])
        return ""

    def _messages(self, data: memoryview, *fields: int) -> Iterator[tuple[int, memoryview]]:
        """The embedded messages and strings of these fields, in their order."""
        for field, wire, value in self._fields(data):
            if wire == _BYTES and field in fields:
                assert isinstance(value, memoryview)
                yield field, value

    def _fields(self, data: memoryview) -> Iterator[tuple[int, int, Value]]:
        """Number, wire type and value of each field."""
        position, end = 0, len(data)
        while position < end:
            self._left -= 1
            if self._left % _BETWEEN == 0:
                if self._left < 0:
                    raise ProtocolError("a protobuf message has too many fields for its size")
                self._between()
            tag, position = _varint(data, position)
            field, wire = tag >> 3, tag & 7
            if not field:
                raise ProtocolError("a field of a protobuf message has the number 0")
            if wire == _VARINT:
                number, position = _varint(data, position)
                yield field, wire, number
                continue
            if wire == _BYTES:
                size, position = _varint(data, position)
            elif wire == _FIXED64:
                size = 8
            elif wire == _FIXED32:
                size = 4
            else:
                raise ProtocolError(f"a protobuf message has a field of wire type {wire}")
            if size > end - position:
                raise ProtocolError(f"a field of {size} bytes is longer than its message")
            value = data[position : position + size]
            position += size
            yield field, wire, value if wire == _BYTES else bytes(value)


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ProtocolError("a number of a protobuf message has no end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a text of a protobuf message isn't UTF-8: {error}") from error
