"""Parsing of values: valid and invalid ones, and row n is always record n."""

from __future__ import annotations

import builtins
import datetime as dt
import io
import json
import tracemalloc
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_pipeline.landing.errors import BadSetting, SchemaRefused
from ottla_pipeline.landing.parsing import csv, formats
from ottla_pipeline.landing.parsing import json as json_values
from ottla_pipeline.landing.parsing.avro import AvroParser
from ottla_pipeline.landing.parsing.base import Parsed, Parser
from ottla_pipeline.landing.parsing.csv import CsvParser
from ottla_pipeline.landing.parsing.json import JsonParser
from ottla_pipeline.landing.parsing.raw import RawParser
from ottla_pipeline.landing.parsing.shapes import Shape
from ottla_pipeline.landing.schema import from_ddl, to_ddl

UTC = dt.UTC


def parse(parser: Parser, values: Sequence[bytes | None]) -> Parsed:
    # Behind others, as a slice of a batch is.
    array = pa.array([b"before", *values], pa.binary()).slice(1)
    parsed = parser.parse(array)
    assert parsed.columns.schema.equals(parser.schema)
    rows = list(range(len(values))) if parsed.rows is None else parsed.rows.tolist()
    assert sorted([*rows, *(one.row for one in parsed.failures)]) == list(range(len(values)))
    assert len(parsed.columns) == len(rows)
    return parsed


def errors(parsed: Parsed) -> dict[int, str]:
    return {one.row: one.error for one in parsed.failures}


def good(parser: Parser, value: bytes) -> Any:
    parsed = parse(parser, [value])
    assert not parsed.failures, parsed.failures
    return next(iter(parsed.columns.to_pylist()[0].values()))


def bad(parser: Parser, value: bytes) -> str:
    parsed = parse(parser, [value])
    assert len(parsed.failures) == 1
    return parsed.failures[0].error


def test_raw_values_are_as_they_are() -> None:
    values = [b"\xff\x00", None, b""]
    assert parse(RawParser(), values).columns.column("value").to_pylist() == values


FLIGHT = JsonParser(from_ddl("a BIGINT, b STRING"))


def test_objects_become_rows() -> None:
    values = [
        b'{"a":1,"b":"x"}',
        b'{"b":"y","other":[1]}',
        None,
        b"{}",
        b' {"a":\n 2 }\n',
        b'{"a":null,"b":null}',
    ]
    parsed = parse(FLIGHT, values)
    assert parsed.columns.column("a").to_pylist() == [1, None, None, None, 2, None]
    assert parsed.columns.column("b").to_pylist() == ["x", "y", None, None, None, None]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b"", "not a JSON object"),
        (b"   ", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b'{"a":1}{"a":2}', "not one JSON object"),
        (b'{"a":1}\n{"a":2}', "not one JSON object"),
        (b'{"a":1', "not one JSON object"),
        (b'{"a":{}', "not one JSON object"),
        (b'{"a":{}}', "a: an object is no BIGINT"),
        (b'{"a":1.5}', "a: '1.5' is no BIGINT"),
        (b'{"a":"1"}', "a: the text '1' is no BIGINT"),
        (b'{"a":99999999999999999999}', "a: '99999999999999999999' is no BIGINT"),
        (b'{"b":1}', "b: the number '1' is no STRING"),
        (b'{"b":"\xff"}', "not UTF-8"),
        (b'{"b":"\\ud800"}', "b: the text has half of a surrogate pair"),
        (b'{"b":"x\ny"}', "not one JSON object"),
        (b'{"a":1,"a":2}', "a occurs twice"),
        (b"{'a':1}", "not one JSON object"),
    ],
)
def test_what_is_no_object_that_fits(value: bytes, what: str) -> None:
    assert what in bad(FLIGHT, value)


def test_records_that_would_heal_each_other_do_not() -> None:
    """Joined by lines, two halves would make one object, and two in one value make up for the row that is missing."""
    values = [b'{"a":1', b"}", b'{"a":2}{"a":3}', b'{"a":4}']
    parsed = parse(FLIGHT, values)
    assert sorted(errors(parsed)) == [0, 1, 2]
    assert parsed.columns.column("a").to_pylist() == [4]


BAD = (
    b"",
    b"{",
    b"}",
    b"[]",
    b'{"a":"x"}',
    b'{"a":1}{"a":2}',
    b'{"a":1',
    b'"}',
    b"\xff",
    b'{"b":"',
    b'"}{"b":"',
)


@settings(max_examples=examples(100))
@given(st.lists(st.one_of(st.integers(-9, 9), st.sampled_from(BAD), st.none()), max_size=12))
def test_row_n_is_record_n(found: list[int | bytes | None]) -> None:
    values = [
        json.dumps({"a": one, "b": str(one)}).encode() if isinstance(one, int) else one for one in found
    ]
    parsed = parse(FLIGHT, values)
    assert set(errors(parsed)) == {i for i, one in enumerate(found) if isinstance(one, bytes)}
    wanted = [one for one in found if not isinstance(one, bytes)]
    assert parsed.columns.column("a").to_pylist() == wanted


def test_many_records_of_which_few_fail() -> None:
    values: list[bytes | None] = [b'{"a":%d}' % i for i in range(20_000)]
    for i in (0, 7_000, 7_001, 19_999):
        values[i] = b"?"
    parsed = parse(FLIGHT, values)
    assert sorted(errors(parsed)) == [0, 7_000, 7_001, 19_999]
    assert len(parsed.columns) == 19_996


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("TIMESTAMP", '"2013-01-01T05:00:00Z"', dt.datetime(2013, 1, 1, 5, tzinfo=UTC)),
        ("TIMESTAMP", '"2013-01-01 05:00:00.25+02:00"', dt.datetime(2013, 1, 1, 3, 0, 0, 250_000, UTC)),
        ("TIMESTAMP_NTZ", '"2013-01-01T05:00:00"', dt.datetime(2013, 1, 1, 5)),
        ("DATE", '"2013-01-01"', dt.date(2013, 1, 1)),
        ("ARRAY<DATE>", '["2013-01-01"]', [dt.date(2013, 1, 1)]),
        ("STRUCT<x: DATE, y: ARRAY<STRUCT<z: INT>>>", '{"x":"2013-01-01","y":[{"z":1}],"w":0}',
         {"x": dt.date(2013, 1, 1), "y": [{"z": 1}]}),
        ("BOOLEAN", "true", True),
        ("TINYINT", "-128", -128),
        ("FLOAT", "1", 1.0),
        ("DOUBLE", "1e3", 1000.0),
    ],
)  # fmt: skip
def test_values_of_every_type(kind: str, text: str, value: object) -> None:
    assert good(JsonParser(from_ddl(f"x {kind}")), f'{{"x":{text}}}'.encode()) == value


def test_decimals() -> None:
    from decimal import Decimal

    parser = JsonParser(from_ddl("x DECIMAL(10,2)"))
    assert good(parser, b'{"x":1.25}') == good(parser, b'{"x":"1.25"}') == Decimal("1.25")
    assert bad(parser, b'{"x":1.255}') == "x: '1.255' is no DECIMAL(10,2)"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("TINYINT", "128"),
        ("DATE", '"2013-13-01"'),
        ("DATE", '"yesterday"'),
        ("TIMESTAMP", "1"),
        ("BOOLEAN", "1"),
    ],
)
def test_values_that_do_not_fit(kind: str, text: str) -> None:
    bad(JsonParser(from_ddl(f"x {kind}")), f'{{"x":{text}}}'.encode())


def test_columns_that_json_has_nothing_for() -> None:
    for kind in ("MAP<STRING, INT>", "BINARY", "ARRAY<STRUCT<y: BINARY>>"):
        with pytest.raises(SchemaRefused, match="not read from JSON"):
            JsonParser(from_ddl(f"x {kind}"))


def test_new_fields_are_reported_where_they_are_wanted() -> None:
    values: list[bytes | None] = [
        b'{"a":1,"new":1.5}',
        b'{"a":2,"later":null}',
        b"bad",
        b'{"nested":{"x":1},"new":2}',
    ]
    assert parse(FLIGHT, values).unknown is None
    parsed = parse(JsonParser(FLIGHT.schema, grow=True), values)
    assert parsed.unknown is not None
    wanted = pa.schema([("new", pa.float64()), ("nested", pa.struct([("x", pa.int64())]))])
    assert parsed.unknown.columns().equals(wanted)
    assert Shape.from_json(parsed.unknown.to_json()) == parsed.unknown


def test_a_new_field_inside_a_struct_is_reported() -> None:
    parser = JsonParser(from_ddl("p STRUCT<x: INT, l: ARRAY<STRUCT<z: INT>>>"), grow=True)
    parsed = parse(parser, [b'{"p":{"x":1,"y":2}}', b'{"p":{"l":[{"z":1},{"w":[true]}]}}'])
    assert parsed.unknown is not None
    wanted = "p STRUCT<y: BIGINT, l: ARRAY<STRUCT<w: ARRAY<BOOLEAN>>>>"
    assert parsed.unknown.columns().equals(from_ddl(wanted))


@pytest.mark.parametrize("levels", [40, 50_000])
@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"x":', b"}")])
def test_fields_too_deep_for_a_column_are_no_schema(begin: bytes, end: bytes, levels: int) -> None:
    deep = b'{"a":1,"text":"]]]}}}\\"","z":' + begin * levels + b"1" + end * levels + b"}"
    shallow = b'{"a":2,"text":"' + b"[{" * levels + b'","z":[' + b",".join([b"[1]"] * levels) + b"]}"
    growing = JsonParser(FLIGHT.schema, grow=True)
    parsed = growing.parse(pa.array([deep, shallow], pa.binary()))
    assert "nested" in errors(parsed)[0]
    assert parsed.columns.column("a").to_pylist() == [2]
    assert parsed.unknown is not None
    assert parsed.unknown.columns().names == ["text", "z"]
    assert json_values.infer(pa.array([deep, shallow], pa.binary())).names == ["a", "text", "z"]
    # A column that no one asks for may be as deep as it likes.
    assert parse(FLIGHT, [deep]).columns.column("a").to_pylist() == [1]


def test_a_schema_from_a_sample() -> None:
    values = [
        b'{"a":1,"d":"2013-01-01T05:00:00Z","n":null,"p":{"x":1,"y":null}}',
        b'{"a":2.5,"l":[{"x":1}],"s":"x","t":"2013-01-01T05:00:00.25+01:00","day":"2013-01-01"}',
        None,
        b"bad",
        b'{"d":"?","id":18446744073709551615,"A":1,"_offset":3,"t":"2013-01-01T05:00:00Z"}',
        b'{"s":1,"fine":"2013-01-01T05:00:00.123456789Z","big":12345678901234567890123}',
    ]
    found = json_values.infer(pa.array(values, pa.binary()), ["_OFFSET"])
    wanted = (
        "a DOUBLE, d STRING, p STRUCT<x: BIGINT>, l ARRAY<STRUCT<x: BIGINT>>, s STRING, t TIMESTAMP, day DATE, "
        "id DECIMAL(20,0), fine STRING, big DECIMAL(38,0)"
    )
    assert found.equals(from_ddl(wanted)), found
    with pytest.raises(SchemaRefused, match="none of the 1 records"):
        json_values.infer(pa.array([b"x", None], pa.binary()))


def test_a_field_of_two_types_is_of_the_one_that_most_records_have() -> None:
    def of(*values: str) -> str:
        sample = pa.array([f'{{"x":{one}}}'.encode() for one in values], pa.binary())
        return to_ddl(json_values.infer(sample)).removeprefix("x ")

    assert of("1", '"a"', '"b"') == "STRING"
    assert of("true", "1", "1.5") == "DOUBLE"
    assert of("1.5", str(2**53 + 1), str(2**64 - 1)) == "DECIMAL(20,0)"
    assert of("1.5", "2.5", str(2**64 - 1)) == "DOUBLE"
    assert of("[1]", "[]", "[null]", "{}", "1") == "ARRAY<BIGINT>"
    assert of('"2013-01-01"', '"2013-01-01T00:00:00Z"') == "STRING"


CSV = CsvParser(from_ddl("a INT, b STRING, c DOUBLE"))


def test_csv_rows() -> None:
    values: list[bytes | None] = [
        b'1,"x, ""y""",2.5',
        b",,",
        None,
        b'2,"",',
        b'3,"two\nlines",1',
        b"4,a,1\r\n",
    ]
    # What looks like a byte order mark is a part of the value, wherever it is among others.
    marked = parse(CsvParser(from_ddl("b STRING, a INT")), [b"\xef\xbb\xbfx,1", b"\xef\xbb\xbfy,2"])
    assert marked.columns.column("b").to_pylist() == ["\ufeffx", "\ufeffy"]
    parsed = parse(CSV, values)
    assert parsed.columns.to_pylist() == [
        {"a": 1, "b": 'x, "y"', "c": 2.5},
        {"a": None, "b": None, "c": None},
        {"a": None, "b": None, "c": None},
        {"a": 2, "b": "", "c": None},
        {"a": 3, "b": "two\nlines", "c": 1.0},
        {"a": 4, "b": "a", "c": 1.0},
    ]


def test_times_in_csv() -> None:
    stamps = CsvParser(from_ddl("at TIMESTAMP"))
    assert good(stamps, b"2013-01-01T05:00:00+01:00") == dt.datetime(2013, 1, 1, 4, tzinfo=UTC)
    error = bad(stamps, b"2013-01-01 05:00:00")
    assert (
        error == "at: '2013-01-01 05:00:00' is a time with no offset; TIMESTAMP_NTZ takes times without one"
    )
    assert good(CsvParser(from_ddl("at TIMESTAMP_NTZ")), b"2013-01-01 05:00:00") == dt.datetime(2013, 1, 1, 5)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"1,2",
        b"1,2,3,4",
        b"x,y,1",
        b'1,"open,2',
        b'1,x,"2',
        b'1,"x"y,2',
        b"0x1,x,1",
        b"1,x,1\n2,y,2",
        b"1,\xff,2",
    ],
)
def test_what_is_no_row_that_fits(value: bytes) -> None:
    parsed = parse(CSV, [b"1,x,1", value, b"2,y,2"])
    assert list(errors(parsed)) == [1]
    assert parsed.columns.column("a").to_pylist() == [1, 2]


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.one_of(st.integers(0, 9), st.sampled_from([b'1,"', b'",2', b'"', b"1\n2", b'1,"x,1', b""])),
        max_size=8,
    )
)
def test_csv_row_n_is_record_n(found: list[int | bytes]) -> None:
    values = [b"%d,x,1.0" % one if isinstance(one, int) else one for one in found]
    parsed = parse(CSV, list(values))
    assert set(errors(parsed)) == {i for i, one in enumerate(found) if isinstance(one, bytes)}
    assert parsed.columns.column("a").to_pylist() == [one for one in found if isinstance(one, int)]


def test_csv_with_another_delimiter_and_a_schema_from_a_sample() -> None:
    assert csv.infer(pa.array([b"1,x"])).equals(from_ddl("f0 BIGINT, f1 STRING"))
    odd = pa.array([b'007,18446744073709551615,0.12345678901234567,2013-01-01T00:00:00Z,"",1.5', b'1,"'])
    wanted = "f0 STRING, f1 DECIMAL(20,0), f2 STRING, f3 TIMESTAMP, f4 STRING, f5 DOUBLE"
    assert csv.infer(odd).equals(from_ddl(wanted))
    values = pa.array([b"1;x;2013-01-01;", b"2;y;2013-01-02;"], pa.binary())
    found = csv.infer(values, ";")
    assert found.equals(from_ddl("f0 BIGINT, f1 STRING, f2 DATE, f3 STRING"))
    assert good(CsvParser(found, ";"), b"3;z;2013-01-03;") == 3
    with pytest.raises(SchemaRefused, match="ARRAY<INT> is not read from CSV"):
        CsvParser(from_ddl("x ARRAY<INT>"))


ID = "12345678-1234-5678-1234-567812345678"
PLANE = {"type": "record", "name": "Plane", "fields": [{"name": "y", "type": "int"}]}
AVRO = {
    "type": "record",
    "name": "Flight",
    "namespace": "nyc",
    "fields": [
        {"name": "flight", "type": "int"},
        {"name": "tail", "type": ["null", "string"], "default": None},
        {"name": "hour", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "stops", "type": {"type": "array", "items": {"type": "enum", "name": "Airport", "symbols": ["JFK"]}}},
        {"name": "plane", "type": ["null", PLANE]},
        {"name": "tags", "type": {"type": "map", "values": "bytes"}},
    ],
}  # fmt: skip
RECORD = {
    "flight": 1,
    "tail": "N1",
    "hour": dt.datetime(2013, 1, 1, 5, tzinfo=UTC),
    "stops": ["JFK"],
    "plane": {"y": 1999},
    "tags": {"a": b"b"},
}


def avro(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), record)
    return out.getvalue()


def test_avro_records() -> None:
    parser = AvroParser(json.dumps(AVRO))
    value = avro(RECORD)
    parsed = parse(parser, [value, None, value[:-1], value + b"x", b""])
    assert parsed.columns.schema.equals(
        pa.schema(
            [
                ("flight", pa.int32()),
                ("tail", pa.string()),
                ("hour", pa.timestamp("us", "UTC")),
                ("stops", pa.list_(pa.field("element", pa.string()))),
                ("plane", pa.struct([("y", pa.int32())])),
                ("tags", pa.map_(pa.string(), pa.binary())),
            ]
        )
    )
    assert parsed.columns.to_pylist()[0] == {**RECORD, "tags": [("a", b"b")]}
    assert set(errors(parsed)) == {2, 3, 4}
    assert errors(parsed)[3] == "1 bytes are left after the record of this Avro schema"


def test_avro_in_confluents_framing() -> None:
    """A record of another schema id would land in the wrong columns."""
    parser = AvroParser(json.dumps(AVRO), (7, 2**32 - 1))
    for id in (7, 2**32 - 1):
        assert good(parser, b"\0" + id.to_bytes(4, "big") + avro(RECORD)) == 1
    assert "was written with schema id 8, and it is 7 or 4294967295" in bad(
        parser, b"\0\0\0\0\x08" + avro(RECORD)
    )
    assert "written with schema id 7, and it is not given" in bad(
        AvroParser(json.dumps(AVRO), ()), b"\0\0\0\0\7" + avro(RECORD)
    )
    for value in (avro(RECORD), b"", b"\0\0\0"):
        assert "zero byte" in bad(parser, value)


@given(st.binary(max_size=40))
def test_avro_of_any_bytes_is_a_row_or_a_failure(value: bytes) -> None:
    parse(AvroParser(json.dumps(AVRO)), [value])


def test_avro_values_that_their_columns_do_not_hold() -> None:
    """The encoding doesn't keep them to what the schema says of them."""

    def schema(whole: str, amount: dict[str, Any]) -> dict[str, Any]:
        id = {"type": "string", "logicalType": "uuid"}
        kinds = {"whole": whole, "amount": amount, "ids": {"type": "array", "items": id}}
        fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
        return {"type": "record", "name": "Payment", "fields": fields}

    def written(whole: int, amount: int) -> bytes:
        out, wide = io.BytesIO(), fastavro.parse_schema(schema("long", {"type": "bytes"}))
        record = {"whole": whole, "amount": amount.to_bytes(4, "big", signed=True), "ids": [ID]}
        fastavro.schemaless_writer(out, wide, record)
        return out.getvalue()

    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    parser = AvroParser(json.dumps(schema("int", decimal)))
    values = [written(1, 999), written(2**31, 1), b"", written(3, -9999), written(4, 10_000)]
    parsed = parse(parser, [*values, None])
    assert parsed.columns.column("whole").to_pylist() == [1, 3, None]
    assert parsed.columns.column("amount").to_pylist() == [Decimal("9.99"), Decimal("-99.99"), None]
    assert parsed.columns.column("ids").to_pylist() == [[ID], [ID], None]
    assert list(errors(parsed)) == [1, 2, 4]
    assert errors(parsed)[1] == "an int has more than 32 bits: 2147483648"


def test_avro_decimals_that_are_too_long_are_not_computed() -> None:
    """One of 200 KB took a task 3.5 seconds, and one of a megabyte a minute and a half."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    fixed = decimal | {"type": "fixed", "name": "F", "size": 20_000}

    def schema(bare: bool) -> dict[str, Any]:
        kinds = [{k: v for k, v in one.items() if not bare or k != "logicalType"} for one in (decimal, fixed)]
        fields = [{"name": "a", "type": kinds[0]}, {"name": "b", "type": ["null", kinds[1]]}]
        return {"type": "record", "name": "Payment", "fields": fields}

    def written(a: bytes, b: bytes | None) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema(True)), {"a": a, "b": b})
        return out.getvalue()

    most = (10**38 - 1).to_bytes(17, "big", signed=True)
    parsed = parse(
        AvroParser(json.dumps(schema(False))),
        [
            written(b"\x7f" * 20_000, None),
            written(b"\1", b"\x80" * 20_000),
            written(b"\0" * 19_999 + b"\x80", None),
            written(b"\0" * 20_000 + most, b"\xff" * 20_000),
        ],
    )
    assert errors(parsed) == dict.fromkeys((0, 1), "a decimal of 38 digits has 20,000 bytes")
    assert parsed.columns.to_pylist() == [
        {"a": Decimal("1.28"), "b": None},
        {"a": Decimal("9" * 36 + ".99"), "b": Decimal("-0.01")},
    ]


def test_avro_numbers_of_more_than_64_bits_are_no_rows() -> None:
    """fastavro reads 64, or the smallest number; Java refuses them."""
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "long"}]}
    kinds: dict[str, Any] = {
        "flag": "boolean",
        "texts": {"type": "map", "values": ["null", "string"]},
        "numbers": {"type": "array", "items": "long"},
        "kind": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]},
        "id": {"type": "fixed", "name": "Id", "size": 12},
        "again": "Kind",
        "both": ["null", inner],
        "other": "Inner",
        "ratio": "double",
        "part": "float",
        "last": {"type": "bytes"},
    }
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = {"type": "record", "name": "Numbers", "namespace": "of.all", "fields": fields}
    record: dict[str, Any] = {
        "flag": True,
        "texts": {"\u65e5\u672c\u8a9e" * 3: "\u4e2d\u6587" * 9, "x": None},
        "numbers": [-(2**63), 2**63 - 1, 0, -1],
        "kind": "b",
        "id": b"\xff" * 12,
        "again": "a",
        "both": {"n": 77},
        "other": {"n": -(2**62)},
        "ratio": -1.0,
        "part": 0.5,
        "last": b"\xfe" * 20,
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    value = out.getvalue()
    for framed in (False, True):
        head = b"\0\0\0\0\7" if framed else b""
        parser = AvroParser(json.dumps(schema), (7,) if framed else None)
        parsed = parse(parser, [head + value, None, head + value])
        assert parsed.columns.to_pylist()[0] == {**record, "texts": list(record["texts"].items())}
        # 77 in a field, and the length of the last one.
        for small, count in ((b"\x9a\x01", 77), (b"\x28", 20)):
            assert small == _number(count, 0)
            assert value.count(small) == 1
            for bytes, is_long in ((8, False), (10, False), (11, True), (12, True), (19, True)):
                changed = head + value.replace(small, _number(count, bytes))
                parsed = parse(parser, [head + value, changed])
                assert bool(parsed.failures) is is_long, (count, bytes)
            high = head + value.replace(small, _number(count, 10)[:-1] + b"\2")
            assert bad(parser, high) == "a number has more than 64 bits"


def _number(number: int, bytes: int) -> builtins.bytes:
    """As Avro writes it, but with so many bytes at least."""
    number <<= 1
    found: list[int] = []
    while number >= 0x80 or len(found) < bytes - 1:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return builtins.bytes([*found, number])


AB = {"type": "enum", "name": "E", "symbols": ["a", "b"]}


def test_avro_types_as_spark_has_them() -> None:
    fixed = {"type": "fixed", "name": "F16", "size": 16, "logicalType": "uuid"}
    span = {"type": "fixed", "name": "F12", "size": 12, "logicalType": "duration"}
    inner = {"type": "record", "name": "In", "fields": [{"name": "n", "type": "long"}]}
    kinds: dict[str, Any] = {
        "two": ["null", "string", inner],
        "wide": ["int", "long"],
        "real": ["float", "double", "null"],
        "clock": {"type": "int", "logicalType": "time-millis"},
        "fine": {"type": "long", "logicalType": "time-micros"},
        "nanos": {"type": "long", "logicalType": "timestamp-nanos"},
        "id": fixed,
        "span": span,
        "own": {"type": "string", "logicalType": "nobody-knows"},
    }
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = {"type": "record", "name": "All", "namespace": "a.b", "fields": fields}
    bare = json.loads(json.dumps(schema).replace("logicalType", "other"))
    parser = AvroParser(json.dumps(schema))
    wanted = (
        "two STRUCT<member0: STRING, member1: STRUCT<n: BIGINT>>, wide BIGINT, real DOUBLE, clock INT, fine BIGINT, "
        "nanos BIGINT, id STRING, span BINARY, own STRING"
    )
    assert parser.schema.equals(from_ddl(wanted))
    record = {
        "two": {"n": 7}, "wide": 2**40, "real": 1.5, "clock": 1, "fine": 2, "nanos": 2**62, "own": "x",
        "id": bytes(range(16)), "span": b"x" * 12,
    }  # fmt: skip
    for two, row in (({"n": 7}, {"member0": None, "member1": {"n": 7}}), (None, None)):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(bare), record | {"two": two})
        parsed = parse(parser, [out.getvalue()])
        assert parsed.columns.to_pylist() == [
            record | {"two": row, "id": "00010203-0405-0607-0809-0a0b0c0d0e0f"}
        ]


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        (AB, b"\x01", "an enum has 2 symbols, and the value is number -1"),
        (AB, b"\x04", "number 2"),
        (["null", "string"], b"\x01\x02a", "a union has 2 types, and the value is of number -1"),
        ("string", b"\x01a", "a size is -1"),
        ("bytes", b"\x04a", "ends in the middle"),
        ("boolean", b"\x02", "a boolean is 2"),
        ("string", b"\x02\xff", "not UTF-8"),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x04\x00", "a map has a key twice"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xfe" + b"\xff" * 8 + b"\x01", "is no TIMESTAMP"),
    ],
)  # fmt: skip
def test_avro_bytes_that_the_specification_does_not_allow(kind: object, value: bytes, what: str) -> None:
    document = {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}
    assert what in bad(AvroParser(json.dumps(document)), value)


def test_avro_schemas_that_are_no_table() -> None:
    def refused(kind: object) -> str:
        document = {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}
        with pytest.raises(SchemaRefused) as caught:
            AvroParser(json.dumps(document))
        return str(caught.value)

    assert "field 'x': a union of nothing but null" in refused(["null"])
    assert "'r' is no type" in refused(["null", "r"])
    with pytest.raises(SchemaRefused, match="not of a record"):
        AvroParser('"int"')


@pytest.mark.parametrize(
    "field",
    [
        7,
        {"type": "int"},
        {"name": "x"},
        {"name": ["x"], "type": "int"},
        {"name": "x", "type": {"type": "bytes", "logicalType": "decimal"}},
        *(
            {"name": "x", "type": {"type": "bytes", "logicalType": "decimal", **wrong}}
            for wrong in ({"precision": 77}, {"precision": "a"}, {"precision": 5, "scale": 9})
        ),
        {"name": "x", "type": {"type": "bytes", "logicalType": ["decimal"]}},
        {"name": "x", "type": {"type": "enum", "name": "e"}},
        *({"name": "x", "type": {"type": "fixed", "name": "f", **size}} for size in ({}, {"size": 0})),
        {"name": "x", "type": {"type": "fixed", "name": "f", "size": "9"}},
        {"name": "x", "type": {"type": "array", "items": {"type": "record", "name": "s", "fields": []}}},
        {"name": "x", "type": {"type": {"type": "int"}}},
    ],
)
def test_malformed_avro_schemas_are_refused(field: object) -> None:
    with pytest.raises(SchemaRefused, match=r"^[^\n]+$"):
        formats.check("avro", json.dumps({"type": "record", "name": "r", "fields": [field]}))


@pytest.mark.parametrize(
    "document",
    ['{"type":"record","name":"r","fields":7}', '{"type":"record","name":"r"}', "[" * 100_000, "{"],
)
def test_malformed_documents_are_refused(document: str) -> None:
    with pytest.raises(SchemaRefused):
        formats.check("avro", document)


def test_a_schema_file_that_cannot_be_read(tmp_path: Any) -> None:
    path = tmp_path / "flights.avsc"
    path.write_bytes(b"{\xd0}")
    for schema in (str(path), "x" * 5_000, "a\0b"):
        with pytest.raises(SchemaRefused):
            formats.check("avro", schema)


def test_settings_from_what_was_given(tmp_path: Any) -> None:
    def sample() -> pa.Array:
        return pa.array([b'{"a":1}'], pa.binary())

    def made(values: str, schema: str | None, **more: Any) -> pa.Schema:
        return formats.columns(formats.settings(values, schema, sample, **more))

    assert made("json", "a INT").equals(from_ddl("a INT"))
    assert made("json", None).equals(from_ddl("a BIGINT"))
    assert made("json", None, known=from_ddl("k INT")).equals(from_ddl("k INT"))
    file = tmp_path / "schema.json"
    file.write_text('{"properties": {"b": {"type": "string"}}}')
    assert made("json", str(file)).equals(from_ddl("b STRING"))
    assert made("avro", json.dumps(AVRO)).names[0] == "flight"
    for values, schema, what in [
        ("json", "nowhere.json", "neither columns with types nor a file"),
        ("json", "{", "no JSON"),
        ("json", json.dumps(AVRO), "say values=avro"),
        ("json", "[]", "JSON Schema of an object"),
        ("avro", "a INT", "need an Avro schema"),
    ]:
        with pytest.raises(SchemaRefused, match=what):
            made(values, schema)
    with pytest.raises(BadSetting, match="raw values have no schema"):
        made("raw", "a INT")


def test_csv_of_a_long_quoted_text_takes_little_memory() -> None:
    """The exact reader took a hundred bytes for each of the text's."""
    text = "long\n" * 1_000_000
    parser = CsvParser(pa.schema([("a", pa.string())]))
    tracemalloc.start()
    try:
        parsed = parser.parse(pa.array([b'"' + text.encode() + b'"'], pa.binary()))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert parsed.columns.to_pylist() == [{"a": text}]
    assert most < 10 * len(text)
