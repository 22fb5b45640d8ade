"""The compiled JSON loops and Arrow's reader give the same rows and the same failures as the exact reader."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_pipeline.landing.parsing import flat
from ottla_pipeline.landing.parsing.base import Parsed
from ottla_pipeline.landing.parsing.flat import FlatParser
from ottla_pipeline.landing.parsing.json import JsonParser
from ottla_pipeline.landing.parsing.malformed import Malformed
from ottla_pipeline.landing.schema import from_ddl

pytest.importorskip("ottla_pipeline.landing.parsing.kernels")

SCHEMA = from_ddl(
    "t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, b BOOLEAN, x STRING, "
    "ts TIMESTAMP, local TIMESTAMP_NTZ, day DATE, `a rather long näme of a column` STRING"
)
PARSER, GROWING = JsonParser(SCHEMA), JsonParser(SCHEMA, grow=True)


MANY = flat.WORTH_LOADING


@pytest.fixture(autouse=True)
def worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "_objects", flat.WORTH_LOADING)


def array(values: Sequence[bytes | None]) -> pa.Array:
    """Behind others, as a slice of a batch is."""
    return pa.array([b'{"i":7}', *values, b'{"i":8}'], pa.binary()).slice(1, len(values))


def by_arrow(parser: JsonParser, values: pa.Array) -> Parsed:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "_flat", None)
        patch.setattr(FlatParser, "of", lambda *_: None)
        return parser.parse(values)


def exactly(parser: JsonParser, values: pa.Array) -> Parsed:
    def refuse(_: object) -> Any:
        raise Malformed("each is read exactly")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "_attempt", refuse)
        return by_arrow(parser, values)


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Values that differ where a bit does, 0.0 and -0.0 as well, and NaN from nothing."""
    if pa.types.is_floating(column.type):
        return [None if one is None else np.float64(one).tobytes() for one in column.to_pylist()]
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int64() if pa.types.is_timestamp(column.type) else pa.int32())
    found: list[Any] = column.to_pylist()
    return found


def same(parser: JsonParser, values: Sequence[bytes | None]) -> None:
    made = array(values)
    other = exactly(parser, made)
    alike(by_arrow(parser, made), other)
    alike(parser.parse(made), other)


def alike(one: Parsed, other: Parsed) -> None:
    assert one.failures == other.failures
    assert one.columns.schema.equals(other.columns.schema)
    for name in one.columns.column_names:
        assert plain(one.columns.column(name)) == plain(other.columns.column(name)), name
    one.columns.validate(full=True)
    assert [None if each.rows is None else each.rows.tolist() for each in (one, other)].count(None) != 1
    if one.rows is not None and other.rows is not None:
        assert one.rows.tolist() == other.rows.tolist()
    assert (one.unknown is None) == (other.unknown is None)
    assert one.unknown == other.unknown


def is_odd(value: bytes, schema: str = "", *, known_alone: bool = False) -> bool:
    columns = from_ddl(schema) if schema else SCHEMA
    parser = FlatParser.of(columns, MANY)
    assert parser is not None
    table, odd = parser.parse(array([value]), known_alone=known_alone)
    assert len(table) + len(odd) == 1
    return bool(len(odd))


def joined(*parts: str) -> str:
    return "".join(parts)


SPACE = st.sampled_from(["", "", "", " ", "\n", "\t\r ", "\v"])
DIGITS = st.text("0123456789", min_size=1, max_size=22)
NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(json.dumps),
    st.sampled_from([0, 1, 7, 8, 15, 16, 31, 32, 63, 64]).flatmap(
        lambda bits: st.sampled_from([2**bits - 1, 2**bits, 2**bits + 1, -(2**bits), 1 - 2**bits, -1 - 2**bits])
    ).map(str),
    st.builds(
        joined,
        st.sampled_from(["", "-", "+"]),
        DIGITS,
        st.one_of(st.just(""), DIGITS.map(lambda text: "." + text)),
        st.one_of(
            st.just(""), st.builds(joined, st.sampled_from(["e", "E", "e+", "E-"]), st.integers(0, 40).map(str))
        ),
    ),
    st.sampled_from(["-", "0", "-0", "-0.0", "00", "1.", ".5", "1e", "1e400", "NaN", "Infinity", "-Infinity", "0x10"]),
)  # fmt: skip
ESCAPES = st.sampled_from(
    [r"\n", r"\"", r"\\", r"\/", r"\b\f\r\t", r"\u00e9", r"\u0041", r"\u0000", r"\ud83d\ude00", r"\ud83d",
     r"\ude00", r"\ud83d\u0041", r"\uD83D\uDE00", r"\u12", r"\u12G4", r"\x", "\\", "\x01", "\n", "é", "😀", "\x7f"]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=20).map(json.dumps),
    st.text(max_size=20).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.lists(st.one_of(ESCAPES, st.text("abcdefgh", max_size=9)), max_size=5).map(
        lambda parts: f'"{"".join(parts)}"'
    ),
)
DAYS = st.one_of(
    st.dates().map(str),
    st.sampled_from(["0000-01-01", "2100-02-29", "2000-02-29", "2013-13-01", "2013-04-31", "2013-00-10", "2013-1-1"]),
)  # fmt: skip
TIMES = st.one_of(
    st.times().map(str),
    st.builds(
        "{:02}:{:02}:{:02}".format, st.integers(0, 25), st.integers(0, 61), st.integers(0, 61)
    ),
    st.sampled_from(["05", "05:06", "0506", "05:06:07.", "05:06:07.1", "05:06:07.1234567", "5:06:07", "05:06:07,5"]),
)  # fmt: skip
ZONES = st.sampled_from(
    ["", "", "Z", "Z", "z", "+02:00", "-11:30", "+0200", "+02", "+24:00", "+02:60", " ", "+2:00"]
)
STAMPS = st.builds(
    joined, st.just('"'), DAYS, st.sampled_from(["T", " ", "t", ""]), TIMES, ZONES, st.just('"')
)
NESTED = st.recursive(
    st.one_of(NUMBERS, TEXTS, st.sampled_from(["null", "true", "false", "nul", "tru", "falsy"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda found: f"[{','.join(found)}]"),
        st.lists(st.tuples(TEXTS, SPACE, inner), max_size=3).map(
            lambda found: f"{{{','.join(f'{name}{space}:{space}{value}' for name, space, value in found)}}}"
        ),
        st.sampled_from(
            ["[", "{", "}", "]", "[1,]", '{"a":}', '{"a" 1}', '{"a":1,}', "[1 2]", "{1}", "[[]]", "{}"]
        ),
    ),
    max_leaves=6,
)
VALUES = {
    **dict.fromkeys("tsilfd", NUMBERS),
    "b": st.sampled_from(["true", "false"]),
    "x": TEXTS,
    "ts": STAMPS,
    "local": STAMPS,
    "day": DAYS.map(json.dumps),
    "a rather long näme of a column": TEXTS,
}
ANY = st.one_of(NESTED, STAMPS, DAYS.map(json.dumps), st.just("null"))


@st.composite
def fields(draw: st.DrawFn) -> str:
    """A field: mostly of a column and fitting."""
    kind = draw(st.integers(0, 9))
    if kind == 9:
        name, value = draw(st.one_of(TEXTS, st.sampled_from(['"new"', r'"\u0069"', '"I"', '""']))), draw(ANY)
    else:
        column = draw(st.sampled_from(SCHEMA.names))
        name, value = json.dumps(column, ensure_ascii=False), draw(VALUES[column] if kind else ANY)
    return f"{name}{draw(SPACE)}:{draw(SPACE)}{value}{draw(SPACE)}"


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    found = draw(st.lists(fields(), max_size=6, unique_by=lambda text: text.partition(":")[0]))
    text = f"{draw(SPACE)}{{{draw(SPACE)}{','.join(found)}}}{draw(SPACE)}"
    value = text.encode("utf-8", "surrogatepass")
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at, end = draw(st.integers(0, len(value))), draw(st.integers(0, 2))
        value = (
            value[:at] + draw(st.one_of(st.binary(max_size=2), st.sampled_from(BYTES))) + value[at + end :]
        )
    return value


BYTES = [b'"', b"\\", b"{", b"}", b",", b":", b" ", b"\xff", b"\xc3", b"\x00", b"-", b"0", b"", b"]", b"."]
RECORDS = st.lists(st.one_of(objects(), st.none()), max_size=6)


@settings(max_examples=examples(70))
@given(RECORDS)
@example([b'{"i":1}', b"\xff", b'{"x":"\xc3\xa9"}'])
@example([b'{"i":1,"i":null}', b'{"i":null,"i":1}', b'{"new":1,"new":2}', b'{"d":1e400}'])
@example([b'{"f":16777217}', b'{"f":1.00000017881393432617187499}', b'{"f":3e-45}', b'{"f":3.5e38}'])
def test_the_same_as_by_arrow(values: list[bytes | None]) -> None:
    same(PARSER, values)


@settings(max_examples=examples(30))
@given(RECORDS)
def test_the_same_where_new_fields_are_looked_for(values: list[bytes | None]) -> None:
    same(GROWING, values)


@settings(max_examples=examples(50))
@given(st.sampled_from(["f", "d"]), st.one_of(NUMBERS, st.floats(width=32, allow_nan=False).map(repr)))
def test_numbers_to_the_last_bit(column: str, number: str) -> None:
    same(PARSER, [b'{"%b":%b}' % (column.encode(), number.encode()), b"{}", b'{"%b":1}' % column.encode()])


@settings(max_examples=examples(50))
@given(st.sampled_from(["ts", "local"]), STAMPS)
def test_timestamps(column: str, text: str) -> None:
    same(PARSER, [b'{"%b":%b}' % (column.encode(), text.encode())])


@given(st.binary(max_size=40))
def test_any_bytes(value: bytes) -> None:
    same(PARSER, [value, b"{" + value + b"}", b'{"x":"' + value + b'"}'])


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b'{"t":-128,"s":32767,"i":-2147483648,"l":9223372036854775807}',
        b' {\n "d" : 0.1 , "f" : 1.5e3, "b" : false, "x" : null }\n',
        b'{"d":0.30000000000000004,"f":3.14159274}',
        b'{"ts":"2013-01-01T05:00:00Z","local":"2013-01-01 05:00:00.25","day":"2013-01-01"}',
        b'{"ts":"2013-01-01T05:00:00.123456+02:00","x":"caf\xc3\xa9 \\u00e9\\n"}',
        b'{"new":{"a":[1,{"b":"\\\\"}],"c":{}},"i":1,"also":[[],[1.5e3,true,null]]}',
    ],
)
def test_what_is_usual_is_left_to_nobody(value: bytes) -> None:
    assert not is_odd(value)
    same(PARSER, [value])


def test_what_is_odd() -> None:
    assert is_odd(b'{"new":1}', known_alone=True)
    assert is_odd(b'{"x":"\xff"}')
    assert is_odd(b'{"i":1,"i":1}')


def test_columns_that_are_not_for_it() -> None:
    for ddl in ("i INT, x DECIMAL(10, 2)", "i ARRAY<INT>", "x STRUCT<y: INT>", '`a"b` INT', "`a\\b` INT"):
        schema = from_ddl(ddl)
        assert FlatParser.of(schema, MANY) is None
        same(JsonParser(schema), [b'{"i":1}', b"", b'{"x":null}', b'{"a\\"b":1,"a\\\\b":2}'])


def test_too_many_columns_to_look_through() -> None:
    schema = from_ddl(", ".join(f"c{n} INT" for n in range(301)))
    assert FlatParser.of(schema, MANY) is None
    assert not is_odd(b'{"c299":1,"c0":2}', ", ".join(f"c{n} INT" for n in range(300)))


def test_values_without_bytes() -> None:
    parsed = PARSER.parse(pa.array([b"", b""], pa.binary()))
    assert [one.error for one in parsed.failures] == ["the value is not a JSON object"] * 2
    assert PARSER.parse(pa.array([None], pa.binary())).columns.num_rows == 1


def test_many_records_of_which_some_are_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "_CELLS", 1000)
    values: list[bytes | None] = [b'{"i":%d,"x":"%d","d":%d.25}' % (i, i, i) for i in range(2_000)]
    for i in (0, 81, 82, 83, 500, 1_999):
        values[i] = b'{"i":%d,"x":"\\u00e9","x":1}' % i
    values[700] = b'{"x":"\xff"}'
    values[701] = None
    values[702] = b'{"d":1.5,"new":2}'
    same(JsonParser(SCHEMA), values)
    same(JsonParser(SCHEMA, grow=True), values)


def test_fields_in_any_order() -> None:
    shuffle = np.random.default_rng(1)
    rows = [{"i": n, "x": f"x{n}", "d": n / 8, "b": n % 2 == 0, "other": n} for n in range(300)]
    values = [
        json.dumps({name: row[name] for name in shuffle.permutation(list(row))}).encode() for row in rows
    ]
    parsed = PARSER.parse(array(values))
    assert parsed.columns.select(["i", "x", "d", "b"]).to_pylist() == [
        {name: row[name] for name in ("i", "x", "d", "b")} for row in rows
    ]


def test_without_the_loops(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def made(objects: int = flat.WORTH_LOADING) -> Any:
        return FlatParser.of(SCHEMA, objects)

    assert made() is not None
    monkeypatch.setattr(flat, "_objects", 0)
    assert made(flat.WORTH_LOADING - 1) is None
    assert made(1) is not None
    monkeypatch.setattr(flat, "_kernels", flat._kernels.__wrapped__)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "byteorder", "big")
        assert made() is None
    with monkeypatch.context() as patch:
        from ottla_pipeline.landing.parsing import compiling

        patch.setattr(compiling, "uncached", {"decode"})
        assert made() is None
    monkeypatch.setitem(sys.modules, "ottla_pipeline.landing.parsing.kernels", None)
    monkeypatch.delattr("ottla_pipeline.landing.parsing.kernels")
    assert made() is None
    assert "JSON is parsed several times slower without it" in caplog.text
    same(JsonParser(SCHEMA), [b'{"i":1}'])


def test_no_place_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba refuses to compile then; without the cache it does."""
    from ottla_pipeline.landing.parsing import compiling

    asked: list[bool] = []

    def njit(*signature: Any, cache: bool = False, **options: Any) -> Any:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(compiling, "njit", njit)
    monkeypatch.setattr(compiling, "uncached", set())
    assert compiling.compiled(int)(len) is len
    assert compiling.uncached == {"len"}
    assert asked == [True, False]
