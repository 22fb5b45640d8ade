"""Columns from DDL and JSON Schema, and schema evolution."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_pipeline.landing.errors import SchemaRefused
from ottla_pipeline.landing.evolution import check_partitioning, grown
from ottla_pipeline.landing.jsonschema import from_json_schema
from ottla_pipeline.landing.schema import TIMESTAMP, from_ddl, to_ddl
from ottla_pipeline.landing.tables.layout import Layout

SIMPLE = st.sampled_from(
    [
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(),
        pa.binary(), pa.date32(), TIMESTAMP, pa.timestamp("us"), pa.decimal128(10, 2),
    ]
)  # fmt: skip
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=6).filter(str.strip)


def structs(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return fields.map(lambda one: pa.struct(list(one.items())))


TYPES = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        inner.map(lambda one: pa.list_(pa.field("element", one))),
        st.tuples(SIMPLE, inner).map(lambda pair: pa.map_(*pair)),
        structs(inner),
    ),
    max_leaves=5,
)


@given(
    st.lists(st.tuples(NAMES, TYPES, st.booleans()), min_size=1, max_size=4, unique_by=lambda c: c[0].lower())
)
def test_ddl_is_read_back(columns: list[tuple[str, pa.DataType, bool]]) -> None:
    schema = pa.schema([pa.field(*column) for column in columns])
    assert from_ddl(to_ddl(schema)).equals(schema)


@given(st.text(max_size=30))
def test_what_is_no_ddl_is_refused_in_a_line(text: str) -> None:
    refusal = ""
    try:
        from_ddl(text)
    except SchemaRefused as error:
        refusal = str(error)
    assert len(refusal.splitlines()) <= 1


def test_ddl_as_spark_writes_it() -> None:
    text = "flight INT NOT NULL COMMENT 'the number', `tail num` varchar(7), plane STRUCT<year: INT, engines BYTE>"
    wanted = pa.schema(
        [
            pa.field("flight", pa.int32(), False),
            ("tail num", pa.string()),
            ("plane", pa.struct([("year", pa.int32()), ("engines", pa.int8())])),
        ]
    )
    assert from_ddl(text).equals(wanted)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "a column's name was expected"),
        ("flight", "a type was expected"),
        ("flight INTT", r"at 'INTT': a type \(array, bigint"),
        ("flight INT tail STRING", "at 'tail STRING': a comma or the end"),
        ("flight DECIMAL(50,2)", "1 to 38 digits"),
        ("flight INT, FLIGHT INT", "two columns named 'FLIGHT'"),
        ("plane ARRAY<STRUCT<year: INT, Year: INT>>", "plane has two columns named 'Year'"),
        ("flight INT NOT 3", "NULL was expected"),
        ("delays ARRAY<INT", "'>' was expected"),
        ("flight INT; DROP", "at '; DROP'"),
    ],
)
def test_wrong_ddl(text: str, what: str) -> None:
    with pytest.raises(SchemaRefused, match=what):
        from_ddl(text)


def test_json_schema() -> None:
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["flight", "tail"],
        "properties": {
            "flight": {"type": "integer", "minimum": 0},
            "tail": {"type": ["string", "null"]},
            "delay": {"type": "number"},
            "hour": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "stops": {"items": {"enum": ["JFK", "EWR"]}},
            "plane": {"anyOf": [{"$ref": "#/$defs/plane"}, {"type": "null"}]},
        },
        "$defs": {"plane": {"properties": {"year": {"type": "integer"}}}},
    }
    assert from_json_schema(document).equals(
        pa.schema(
            [
                pa.field("flight", pa.int64(), False),
                ("tail", pa.string()),
                ("delay", pa.float64()),
                ("hour", TIMESTAMP),
                ("day", pa.date32()),
                ("stops", pa.list_(pa.field("element", pa.string()))),
                ("plane", pa.struct([("year", pa.int64())])),
            ]
        )
    )


@pytest.mark.parametrize(
    ("inner", "what"),
    [
        ({"type": ["string", "integer"]}, "property 'x': one type is needed, string or integer is given"),
        ({}, "none is given"),
        ({"type": "object"}, "an object needs properties"),
        ({"$ref": "#/nowhere"}, "'#/nowhere' is not in the document"),
        ({"$ref": "http://example.org/x"}, "in another document"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "a choice of 2 types"),
        ({"$ref": "#"}, "nested more than 32 deep"),
        ({"type": "text"}, "'text' is no type"),
        (True, "says no type"),
    ],
)
def test_what_is_no_column_of_a_json_schema(inner: object, what: str) -> None:
    with pytest.raises(SchemaRefused, match=what):
        from_json_schema({"properties": {"x": inner}})


TABLE = pa.schema([("flight", pa.int64()), ("delay", pa.float64()), ("carrier", pa.string())])


def test_new_columns_are_added_behind() -> None:
    wanted = pa.schema(
        [("carrier", pa.string()), ("flight", pa.int32()), pa.field("gate", pa.string(), False)]
    )
    full, new = grown("lake/flights", TABLE, wanted)
    assert new == [pa.field("gate", pa.string())]
    assert full.equals(pa.schema([*TABLE, *new])), "a narrower type goes into the column that there is"


@pytest.mark.parametrize(
    ("column", "what"),
    [
        (("flight", pa.string()), "has the column flight as BIGINT, the schema as STRING"),
        (("delay", pa.int64()), "has the column delay as DOUBLE, the schema as BIGINT"),
        (("Carrier", pa.string()), "has a column carrier, the schema one Carrier"),
    ],
)
def test_incompatible_columns_are_refused(column: tuple[str, pa.DataType], what: str) -> None:
    with pytest.raises(SchemaRefused, match=what):
        grown("lake/flights", TABLE, pa.schema([column]))


@pytest.mark.parametrize("names", [("s", "S"), ("S", "s")])
def test_the_exact_column_is_meant_if_another_program_adds_one_in_another_case(
    names: tuple[str, str],
) -> None:
    has = pa.schema([(name, pa.string()) for name in names])
    assert grown("t", has, pa.schema([("s", pa.string())])) == (has, [])


def test_fields_in_a_struct_are_added() -> None:
    year, model = pa.field("year", pa.int32()), pa.field("model", pa.string())
    has = pa.schema([("id", pa.int64()), ("plane", pa.struct([year])), ("legs", pa.list_(pa.struct([year])))])
    wanted = pa.schema(
        [("legs", pa.list_(pa.struct([model, year]))), ("plane", pa.struct([model])), ("n", pa.int8())]
    )
    both = pa.struct([year, model])
    new = [pa.field("legs", pa.list_(both)), pa.field("plane", both), pa.field("n", pa.int8())]
    assert [str(one).replace("<item", "<element") for one in grown("t", has, wanted)[1]] == [
        str(one).replace("<item", "<element") for one in new
    ]
    assert grown("t", has, wanted)[0].names == ["id", "plane", "legs", "n"]
    assert grown("t", grown("t", has, wanted)[0], has)[1] == []
    with pytest.raises(SchemaRefused, match="plane as STRUCT<year: INT>"):
        grown("t", has, pa.schema([("plane", pa.struct([("year", pa.string())]))]))


def test_other_partitions_are_refused() -> None:
    days = pa.schema([("a", pa.string()), ("when", TIMESTAMP), ("when_date", pa.date32())])
    check_partitioning("t", Layout.plain(days, ["a"]), ("a",), days)
    check_partitioning("t", Layout.plain(days, ["a"]), (), days)
    with pytest.raises(SchemaRefused, match="partitioned by a, not by when_date"):
        check_partitioning("t", Layout.plain(days, ["a"]), ("when_date",), days)
    with pytest.raises(SchemaRefused, match="partitioned by a, not by nothing"):
        check_partitioning("t", Layout.plain(days, ["a"]), (), days.remove(0))
    with pytest.raises(SchemaRefused, match="partitioned by when_date, not by nothing"):
        check_partitioning("t", Layout.plain(days, ["when_date"]), (), days)
