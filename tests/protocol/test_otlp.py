"""Reading of OTLP metrics, against messages put together by hand and against any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.otlp import gauge, metrics_data, number, summed, tagged

from ottla_protocol.errors import ProtocolError
from ottla_protocol.otlp import Point, read_metrics
from ottla_protocol.primitives import uvarint


def test_gauges_and_sums() -> None:
    data = metrics_data(
        [
            gauge("a.b", number(1.5, {"topic": "t", "partition": 3, "ok": True, "share": 0.5})),
            summed("c", number(7), monotonic=True, delta=True),
            summed("d", number(-2), monotonic=False, delta=False),
        ],
        {"client_rack": "r"},
    )
    found = read_metrics(data, 100)
    assert found.resource == (("client_rack", "r"),)
    assert found.left_out == 0
    assert found.points == [
        Point(
            "a.b",
            1.5,
            False,
            False,
            (("ok", "true"), ("partition", "3"), ("share", "0.5"), ("topic", "t")),
        ),
        Point("c", 7, True, True, ()),
        Point("d", -2, False, False, ()),
    ]


def test_points_have_a_bound() -> None:
    data = metrics_data([gauge("a", *(number(each) for each in range(10)))])
    found = read_metrics(data, 4)
    assert (len(found.points), found.left_out) == (4, 6)


def test_other_fields_are_passed_over() -> None:
    histogram = tagged(1, b"h") + tagged(9, b"\x0a\x00")
    data = metrics_data([histogram, gauge("a", number(1) + b"\x40\x01" + b"\x2d" + bytes(4))])
    assert [each.name for each in read_metrics(data, 9).points] == ["a"]
    assert read_metrics(b"", 9).points == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05\x0a",  # longer than the message
        b"\x0b",  # a group
        b"\x80",  # a number without an end
        b"\xff" * 11,
        b"\x02\x00",  # field 0
        metrics_data([tagged(1, b"\xff")]),  # not UTF-8
        tagged(1, b"\x11" + bytes(3)),  # half a double
    ],
)
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_metrics(data, 9)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    try:
        found = read_metrics(data, 5)
    except ProtocolError:
        return
    assert len(found.points) <= 5


_NUMBERS = st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1)


_LABELS = st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9), max_size=4)


@given(st.lists(st.tuples(st.text(max_size=8), _NUMBERS, _LABELS), max_size=8))
def test_what_is_written_is_read(points: list[tuple[str, float, dict[str, str]]]) -> None:
    data = metrics_data([gauge(name, number(value, labels)) for name, value, labels in points])
    found = read_metrics(data, 1000).points
    assert [(each.name, each.value, dict(each.attributes)) for each in found] == points


def test_a_message_of_empty_fields_is_given_up() -> None:
    empty = b"\x12\x00" * 60_000
    pauses: list[int] = []
    with pytest.raises(ProtocolError, match="too many fields"):
        read_metrics(b"\x0a" + uvarint(len(empty)) + empty, 9, lambda: pauses.append(1))
    assert len(pauses) == (2 * 60_000 // 6) // 500
