"""Columns of DataFrames as parts of records."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla_client.producer.records import record_size
from ottla_pipeline.writing.errors import WriteError
from ottla_pipeline.writing.rows import Layout, Rows, header_size, joined

PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


KINDS = {
    "bigint": LongType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "string": StringType(),
    "timestamp": TimestampType(),
}


def schema(text: str) -> StructType:
    """Columns as in ``value string, key binary``."""
    words = [part.split(" ") for part in text.split(", ")]
    return StructType([StructField(name, KINDS[kind]) for name, kind in words])


def of(to: str | None, /, **columns: pa.Array) -> list[Rows]:
    batch = pa.RecordBatch.from_pydict(columns)
    names = list(columns)
    layout = Layout(
        names.index("value"),
        names.index("key") if "key" in names else None,
        names.index("headers") if "headers" in names else None,
        names.index("partition") if "partition" in names else None,
        names.index("topic") if to is None else None,
        to,
    )
    return list(layout.split(batch))


def test_value_alone_is_enough_and_other_columns_are_left_alone() -> None:
    layout = Layout.of(schema("id bigint, value string, when timestamp"), "t")
    assert layout == Layout(1, None, None, None, None, "t")


def test_the_option_goes_over_the_column() -> None:
    columns = schema("value binary, key string, topic string, partition int")
    assert Layout.of(columns, "t").topic_column is None
    assert Layout.of(columns, None).topic_column == 2


@pytest.mark.parametrize(
    ("columns", "topic", "said"),
    [
        ("key string", "t", "the column value, which is written, is missing; the columns are key"),
        ("value bigint", "t", "the column value has the type bigint; string or binary is needed"),
        ("value string, key int", "t", "the column key has the type int; string or binary is needed"),
        ("value string, partition bigint", "t", "the column partition has the type bigint; int is needed"),
        ("value string, topic binary", "t", "the column topic has the type binary; string is needed"),
        ("value string, headers string", "t", "array<struct<key: string, value: binary>> is needed"),
        ("value string", None, "set the option topic, or add a column topic"),
        ("value string, value string", "t", "there are two columns value"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns: str, topic: str | None, said: str) -> None:
    with pytest.raises(WriteError) as error:
        Layout.of(schema(columns), topic)
    assert said in str(error.value)


def test_text_and_bytes_are_written_as_they_are_and_null_values_are_tombstones() -> None:
    (rows,) = of("t", value=pa.array(["ü", None, ""]), key=pa.array([b"\xff", b"", None]))
    assert rows.value_list() == ["ü".encode(), None, b""]
    assert rows.key_list() == [b"\xff", b"", None]
    assert rows.header_lists() is None


def test_rows_are_dealt_out_by_topic_and_partition_in_their_order() -> None:
    found = of(
        None,
        value=pa.array(["1", "2", "3", "4", "5"]),
        topic=pa.array(["a", "b", "a", "a", "a"]),
        partition=pa.array([1, None, None, 1, 0], pa.int32()),
    )
    assert [(rows.topic, rows.partition, rows.value_list()) for rows in found] == [
        ("a", 1, [b"1", b"4"]),
        ("a", None, [b"3"]),
        ("a", 0, [b"5"]),
        ("b", None, [b"2"]),
    ]


def test_a_row_without_a_topic_is_an_error() -> None:
    with pytest.raises(WriteError, match="a row's topic is null"):
        of(None, value=pa.array(["1"]), topic=pa.array([None], pa.string()))


def test_our_header_comes_behind_those_of_the_row() -> None:
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []], PAIRS)
    (rows,) = of("t", value=pa.array(["1", "2", "3"]), headers=headers)
    own = ("ottla.write", b"x")
    made = joined(rows.header_lists(), own, 3)
    assert made is not None
    assert list(made) == [(("a", b"1"), ("a", None), own), (own,), (own,)]
    assert joined(None, None, 3) is None


def test_a_null_among_headers_is_an_error() -> None:
    (rows,) = of("t", value=pa.array(["1"]), headers=pa.array([[None]], PAIRS))
    with pytest.raises(WriteError, match="a null among its headers"):
        rows.header_lists()


maybe_bytes = st.none() | st.binary(max_size=20)


@given(
    st.lists(
        st.tuples(
            maybe_bytes, maybe_bytes, st.none() | st.lists(st.tuples(st.text(max_size=5), maybe_bytes))
        ),
        min_size=1,
        max_size=20,
    )
)
def test_sizes_are_never_below_what_the_producer_counts(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]],
) -> None:
    headers = pa.array(
        [None if its is None else [{"key": n, "value": v} for n, v in its] for *_, its in records], PAIRS
    )
    (rows,) = of(
        "t",
        value=pa.array([value for value, *_ in records], pa.binary()),
        key=pa.array([key for _, key, _ in records], pa.binary()),
        headers=headers,
    )
    own = ("ottla.write", b"abc")
    for size, (value, key, its) in zip(rows.sizes(header_size(own)).tolist(), records, strict=True):
        assert size >= record_size(value, key, (*(its or ()), own))
    # Cut out of a larger array, they have the same sizes.
    rest = Rows("t", None, rows.values[1:], rows.keys[1:], rows.headers[1:])
    assert rest.sizes(3).tolist() == rows.sizes(3).tolist()[1:]
