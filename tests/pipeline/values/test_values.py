"""Random values land unchanged, or are dead letters for a reason: judged by an oracle, read back by other libraries.

``OTTLA_VALUES`` sets about how many values there are; `make faults` tries a million, and has Spark read them back, too.
``OTTLA_FAULT_SEED`` sets the seed.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from harness.lakehouse import LakehouseSpark
from tests.pipeline.landing.rounds import run
from tests.pipeline.values import making, oracle
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic

from ottla_client.sync import Producer
from ottla_pipeline.landing.job_plan import table_of
from ottla_pipeline.landing.settings import Landing
from ottla_pipeline.landing.tables import FORMATS

pytest.importorskip("ottla_pipeline.landing.parsing.kernels")

VALUES = int(os.environ.get("OTTLA_VALUES", "20000"))
SEED = int(os.environ.get("OTTLA_FAULT_SEED", "26"))
SPARK_FROM = 1_000_000
"""Spark reads the tables back, too, if there are so many values."""
STAMPS = [
    0,
    1,
    1_700_000_000_000,
    1_700_000_000_000_000,
    10**18,
    253_402_300_800_000,
    2 * 10**18,
    9_223_372_036_854_775,
]
Judge = Callable[[bytes | None], Mapping[str, Any] | None]


def _columns(schema: pa.Schema) -> oracle.Columns:
    return {one.name: _kind(one.type) for one in schema}


def _kind(kind: pa.DataType) -> oracle.Kind:
    """The oracle's kind for a column that was inferred."""
    if pa.types.is_struct(kind):
        return "struct", _columns(pa.schema(list(kind)))
    if pa.types.is_list(kind):
        return "list", _kind(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "int" if pa.types.is_integer(kind) else "float", kind.bit_width
    if pa.types.is_decimal(kind):
        return "decimal", (kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return "utc" if kind.tz else "local", None
    name = "flag" if pa.types.is_boolean(kind) else "date" if pa.types.is_date(kind) else "text"
    return name, None


def _plain(column: Any) -> list[Any]:
    """Values as the oracle has them."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if pa.types.is_timestamp(kind):
        return array.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date(kind):
        return array.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_floating(kind):
        return [None if one is None else oracle.bits(one, kind.bit_width) for one in array.to_pylist()]
    if pa.types.is_struct(kind):
        inner = {one.name: _plain(array.field(at)) for at, one in enumerate(kind)}
        valid = array.is_valid().to_pylist()
        return [{name: inner[name][at] for name in inner} if valid[at] else None for at in range(len(array))]
    if pa.types.is_map(kind):
        keys, items = _plain(array.keys), _plain(array.items)
        return _lists(array, list(zip(keys, items, strict=True)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, _plain(array.values))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return array.to_pylist()  # type: ignore[no-any-return]
    found: list[Any] = array.to_pylist()
    return found


def _lists(array: Any, inner: list[Any]) -> list[Any]:
    edges, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()
    return [inner[edges[at] : edges[at + 1]] if valid[at] else None for at in range(len(array))]


def _by_its_library(form: str, place: str) -> pa.Table:
    """The table, read without Ottla."""
    if form == "delta":
        import deltalake

        return deltalake.DeltaTable(place).to_pyarrow_dataset().to_table()
    if form == "iceberg":
        from pyiceberg.catalog import load_catalog

        folder, _, name = place.rpartition("/")
        catalog = load_catalog(
            "ottla", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        return catalog.load_table(name).scan().to_arrow()
    return _plain_files(Path(place))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all tables."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def spark(lake: Path) -> Iterator[LakehouseSpark | None]:
    """Spark 4.0 with the runtimes of Delta and Iceberg; None if there are few values."""
    if VALUES < SPARK_FROM:
        yield None
        return
    with LakehouseSpark(lake) as session:
        session.sql("SET spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS")
        session.sql("SET spark.sql.parquet.mergeSchema=true")
        yield session


def _by_spark(spark: LakehouseSpark, form: str, place: str, copy: Path) -> pa.Table:
    """The table as Spark reads it: by way of a copy, as Python has no types for all values."""
    source = f"ottla.{place.rpartition('/')[2]}" if form == "iceberg" else f"{form}.`{place}`"
    spark.sql(f"INSERT OVERWRITE DIRECTORY '{copy}' USING parquet SELECT * FROM {source}")
    return _plain_files(copy)


def _plain_files(folder: Path) -> pa.Table:
    files = [str(one) for one in folder.rglob("*.parquet") if not {"_dead", "_staging"} & set(one.parts)]
    return ds.dataset(files, partitioning=None).to_table() if files else pa.table({})


def _is_dead(judge: Judge, value: bytes | None) -> bool:
    try:
        judge(value)
    except oracle.Dead:
        return True
    return False


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empty(one) for name, one in value.items()}
    return ([_without_empty(one) for one in value] or None) if isinstance(value, list) else value


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    return sum(map(_count, value)) if isinstance(value, list) else int(value is not None)


CASES: dict[str, tuple[dict[str, Any], Callable[[random.Random], bytes], Judge | None]] = {
    "flat": (
        {"values": "json", "schema": making.FLAT},
        lambda rng: making.json_value(rng, making.FLAT_COLUMNS),
        lambda value: oracle.json_row(value, making.FLAT_COLUMNS),
    ),
    "nested": (
        {"values": "json", "schema": making.NESTED},
        lambda rng: making.json_value(rng, making.NESTED_COLUMNS),
        lambda value: oracle.json_row(value, making.NESTED_COLUMNS),
    ),
    "inferred": (
        {"values": "json"},
        lambda rng: making.json_value(rng, rng.choice([making.FLAT_COLUMNS, making.NESTED_COLUMNS])),
        None,
    ),
    "csv": (
        {"values": "csv", "schema": making.CSV},
        lambda rng: making.csv_value(rng, making.CSV_COLUMNS),
        lambda value: oracle.csv_row(value, making.CSV_COLUMNS),
    ),
    "avro": (
        {"values": "avro", "schema": json.dumps(making.AVRO)},
        making.avro_value,
        lambda value: oracle.avro_row(value, making.AVRO),
    ),
}
# About how many values a record has.
SIZES = {"flat": 10, "nested": 6, "inferred": 10, "csv": 11, "avro": 17}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_values_land_unchanged_or_are_dead_letters_for_a_reason(
    case: str, form: str, broker: BrokerProcess, lake: Path, spark: LakehouseSpark | None
) -> None:
    settings, make, judge = CASES[case]
    rng = random.Random(f"{SEED} {case} {form}")
    topic = f"values-{case}-{form}-{time.time_ns()}"
    create_topic(broker, topic, 1)
    records: list[tuple[bytes | None, int]] = []
    for _ in range(max(1, VALUES // len(CASES) // len(FORMATS) // SIZES[case])):
        value: bytes | None = make(rng)
        if value is not None and rng.random() < 0.03:
            value = making.spoiled(rng, value)
        records.append((None if rng.random() < 0.01 else value, rng.choice(STAMPS)))
    with Producer(broker.bootstrap) as producer:
        for value, stamp in records:
            producer.send(topic, value, partition=0, timestamp_ms=stamp)
    place = f"{lake}/default.{case}" if form == "iceberg" else f"{lake}/{form}_{case}"
    dead = f"{place}_dead"
    job = Landing(
        broker.bootstrap, place, topics=(topic,), format=form, dead_letters=f"table:{dead}", **settings
    )
    done = run(job)
    assert done is not None
    assert (done.rows + done.dead_letters) == len(records)
    table = table_of(job)
    table.refresh()
    if judge is None:
        own = {one.name for one in job.names.fields()}
        inferred = _columns(pa.schema([one for one in table.schema() if one.name not in own]))
        judge = lambda value: oracle.json_row(value, inferred, grow=True)  # noqa: E731
    # pyiceberg reads a null list inside a struct as an empty one.
    checked = _compare(_by_its_library(form, place), records, judge, exact=form != "iceberg")
    if spark is not None:
        by_spark = _compare(_by_spark(spark, form, place, lake / "copy"), records, judge, exact=True)
        assert by_spark == checked
    letters = table_of(replace(job, table=dead, dead_letters=None))
    letters.refresh()
    gone = {
        row["offset"]: row["error"]
        for batch in letters.scan(["offset", "error"])
        for row in batch.to_pylist()
    }
    assert set(gone) == set(range(len(records))) - checked.keys()
    landed = [(records[at][0], error) for at, error in gone.items() if not _is_dead(judge, records[at][0])]
    assert not landed, "dead letters without a reason"
    print(
        f"{form} {case}: {sum(checked.values()):,} values in {len(checked):,} rows, {len(gone):,} dead letters"
    )


def _compare(
    rows: pa.Table, records: list[tuple[bytes | None, int]], judge: Judge, *, exact: bool
) -> dict[int, int]:
    """Raises AssertionError for a row that isn't what its record says; returns how many values each offset has."""
    checked: dict[int, int] = {}
    columns = {name: _plain(rows.column(name)) for name in rows.column_names}
    for at, offset in enumerate(columns.get("_offset", ())):
        value, stamp = records[offset]
        try:
            wanted = judge(value)
        except oracle.Dead as reason:
            raise AssertionError(f"{value!r} has landed, and is none: {reason}") from None
        assert offset not in checked
        assert columns["_timestamp"][at] == oracle.stamp(stamp)
        for name, column in columns.items():
            if not name.startswith("_"):
                expected = None if wanted is None else wanted[name]
                found = column[at] if exact else _without_empty(column[at])
                assert found == (expected if exact else _without_empty(expected)), (
                    name,
                    found,
                    expected,
                    value,
                )
        checked[offset] = 1 if wanted is None else _count(dict(wanted))
    return checked
