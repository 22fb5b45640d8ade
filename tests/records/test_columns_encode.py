"""Batches made of columns are the bytes that the same records make one at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.records.columns import encode_columns
from ottla_protocol.records.record import decode_records, encode_batch

TIME = 1_700_000_000_000
sizes = st.sampled_from((0, 1, 2, 62, 63, 64, 65, 8190, 8191, 8192, 8193)) | st.integers(0, 200)
payloads = sizes.map(lambda size: b"p" * size) | st.binary(max_size=40)
deltas = st.sampled_from((0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**31, -(2**31), 2**41))
stamps = (deltas | st.integers(0, 100)).map(lambda delta: TIME + delta)
headers = st.just(()) | st.lists(
    st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3
).map(tuple)


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Any]:
    """Columns of one length; each may be left out, be of one value, lack fields, or be anything."""
    count = draw(st.integers(1, 12) | st.sampled_from((63, 64, 65, 200)))

    def column(*fields: st.SearchStrategy[Any]) -> Any:
        each = draw(st.sampled_from(fields))
        few = draw(st.lists(each, min_size=1, max_size=12))
        return [few[number % len(few)] for number in range(count)]

    given: dict[str, Any] = {
        "values": column(payloads, st.none() | payloads, st.binary(min_size=7, max_size=7))
    }
    if draw(st.booleans()):
        given["keys"] = column(payloads, st.none() | payloads, st.none(), st.binary(min_size=3, max_size=3))
    if draw(st.booleans()):
        given["headers"] = column(headers, st.just(()))
    given["timestamps"] = draw(st.just(TIME) | st.sampled_from((-5, 0)))
    if draw(st.booleans()):
        given["timestamps"] = column(stamps, st.just(TIME), st.integers(TIME, TIME + 50))
    return given


def one_by_one(given: dict[str, Any], **options: Any) -> bytearray:
    values = given["values"]
    nothing = [None] * len(values)
    times = given["timestamps"]
    return encode_batch(
        list(
            zip(
                [times] * len(values) if isinstance(times, int) else times,
                given.get("keys") or nothing,
                values,
                given.get("headers") or [()] * len(values),
                strict=True,
            )
        ),
        **options,
    )


@settings(deadline=None)
@given(columns(), st.sampled_from(range(5)))
def test_the_same_bytes(given: dict[str, Any], codec: int) -> None:
    assert encode_columns(**given, codec=codec) == one_by_one(given, codec=codec)


@pytest.mark.parametrize("varied", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_offsets_of_up_to_three_bytes(varied: bool, keyed: bool) -> None:
    values = [b"v" * (number % 3 if varied else 1) for number in range(8300)]
    given: dict[str, Any] = {"values": values, "timestamps": TIME}
    if keyed:
        given["keys"] = [b"%d" % number for number in range(len(values))]
    assert encode_columns(**given) == one_by_one(given)
    assert encode_columns(values[:2048], timestamps=TIME) == one_by_one(
        {"values": values[:2048], "timestamps": TIME}
    )


def test_more_sizes_than_are_cached() -> None:
    for _ in range(2):
        for size in range(40):
            given = {"values": [b"v" * size] * (size + 50), "timestamps": TIME}
            assert encode_columns(**given) == one_by_one(given)
            given["keys"] = [b"%03d" % number for number in range(size + 50)]
            assert encode_columns(**given) == one_by_one(given)


def test_the_producers_fields() -> None:
    options = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 2**31 - 1, "transactional": True}
    given = {"values": [b"a", b"b"], "timestamps": TIME}
    batch = encode_columns(**given, **options, codec=4)
    assert batch == one_by_one(given, **options, codec=4)
    assert decode_records(encode_columns(**given, **options, codec=4, level=5)) == decode_records(batch)


def test_bytes_like() -> None:
    batch = encode_columns([bytearray(b"value")], keys=[memoryview(b"key")], timestamps=TIME)  # type: ignore[list-item]
    assert [record[1:4] for record in decode_records(batch)] == [(TIME, b"key", b"value")]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"values": []}, "needs a record"),
        ({"values": [b""], "keys": []}, "0 keys for 1 values"),
        ({"values": [b""], "headers": [(), ()]}, "2 headers for 1 values"),
        ({"values": [b""], "timestamps": [1, 2]}, "2 timestamps for 1 values"),
        ({"values": [b"", b""], "timestamps": [-(2**63), 2**63 - 1]}, "ms apart"),
        ({"values": [b""], "timestamps": 2**63}, "does not fit"),
        ({"values": [b""], "producer_epoch": 2**15}, "does not fit"),
        ({"values": [b""], "codec": 5}, "codec 5"),
        ({"values": [b""], "codec": 1, "level": 11}, "levels 1 to 9"),
        ({"values": [b""], "headers": [[("\ud800", b"")]]}, "cannot be named"),
    ],
)
def test_values_that_no_batch_can_hold(given: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        encode_columns(**{"timestamps": TIME, **given})
