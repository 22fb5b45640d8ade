"""Partition values are those that Iceberg's own transforms compute."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_pipeline.landing.tables.transforms import from_text, is_writable, texts, transformed

# pyiceberg's own transforms make Python's dates.
TIMES = st.integers(-(10**16), 10**16)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), st.integers(-(2**31) + 100, 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63) + 100, 2**63 - 1)),
    "string": (pa.string(), st.text(st.characters(exclude_categories=("Cs",)), max_size=12)),
    "decimal(12, 3)": (
        pa.decimal128(12, 3),
        st.integers(-(10**11), 10**11).map(lambda number: Decimal(number).scaleb(-3)),
    ),
    "date": (pa.date32(), st.integers(-500_000, 500_000)),
    "timestamp": (pa.timestamp("us"), TIMES),
    "timestamptz": (pa.timestamp("us", "UTC"), TIMES),
}
TRANSFORMS = ("bucket[1]", "bucket[7]", "truncate[3]", "year", "month", "day", "hour", "identity", "void")


@pytest.mark.parametrize("name", list(VALUES))
@given(data=st.data())
def test_every_transform_of_every_type(name: str, data: st.DataObject) -> None:
    from pyiceberg.transforms import parse_transform
    from pyiceberg.types import PrimitiveType, StructType

    kind, values = VALUES[name]
    struct = StructType.model_validate(
        {"type": "struct", "fields": [{"id": 1, "name": "c", "type": name, "required": False}]}
    )
    source: PrimitiveType = struct.fields[0].field_type
    rows = data.draw(st.lists(st.none() | values, max_size=8))
    number = pa.int32() if pa.types.is_date(kind) else pa.int64()
    column = pa.array(rows, number).cast(kind) if pa.types.is_temporal(kind) else pa.array(rows, kind)
    for text in TRANSFORMS:
        transform = parse_transform(text)
        assert is_writable(text, kind) == transform.can_transform(source), text
        if is_writable(text, kind):
            found = transformed(text, pa.chunked_array([column]))
            compute = transform.transform(source)
            assert [from_text(one, found.type) for one in texts(found)] == [compute(one) for one in rows], (
                text
            )


def test_long_texts_get_into_buckets() -> None:
    from pyiceberg.transforms import BucketTransform
    from pyiceberg.types import StringType

    text = "long " * 2_000_000
    assert transformed("bucket[16]", pa.chunked_array([[text]])).to_pylist() == [
        BucketTransform(16).transform(StringType())(text)
    ]


def test_dates_after_the_year_9999() -> None:
    days = transformed("day", pa.chunked_array([pa.array([2**60], pa.int64()).cast(pa.timestamp("us"))]))
    assert [from_text(one, days.type) for one in texts(days)] == [2**60 // 86_400_000_000]


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.float64(), pa.time64("us"), pa.timestamp("ns"), pa.binary(16)]
)
def test_what_no_partition_is_written_by(kind: pa.DataType) -> None:
    assert [one for one in TRANSFORMS if is_writable(one, kind)] == ["void"]
