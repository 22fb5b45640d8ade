"""Dead letters carry the value whole."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from ottla_pipeline.writing.large import TooLarge, dead_letters


@given(st.none() | st.binary(max_size=100), st.integers(1, 40), st.none() | st.binary(max_size=5))
def test_parts_make_the_value_again(value: bytes | None, part: int, key: bytes | None) -> None:
    rows = dead_letters(TooLarge("t", 3, key, value, (("h", None),), "too large"), "dead", part)
    values = rows.value_list()
    assert rows.topic == "dead"
    assert rows.partition is None
    if value is None:
        assert values == [None]
    else:
        assert b"".join(each or b"" for each in values) == value
        assert all(each is not None and len(each) <= part for each in values)
    assert (rows.key_list() or [None] * len(rows)) == [key] * len(rows)
    every = rows.header_lists()
    assert every is not None
    for number, headers in enumerate(every, 1):
        assert headers[-1] == ("h", None)
        assert dict(headers) == {
            "ottla.dead.topic": b"t",
            "ottla.dead.partition": b"3",
            "ottla.dead.error": b"too large",
            "ottla.dead.size": b"null" if value is None else str(len(value)).encode(),
            "ottla.dead.sha256": sha256(value or b"").hexdigest().encode(),
            "ottla.dead.part": f"{number}/{len(values)}".encode(),
            "h": None,
        }


def test_keys_and_headers_that_are_large_themselves_are_left_out_and_said_to_be() -> None:
    big = bytes(40_000)
    rows = dead_letters(TooLarge("t", None, big, b"v", (("h", big),), "too large"), "dead")
    assert rows.key_list() is None
    (headers,) = rows.header_lists() or [()]
    assert dict(headers)["ottla.dead.left-out"] == b"key,headers"
    assert "h" not in dict(headers)
