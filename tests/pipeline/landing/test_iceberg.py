"""Iceberg tables as other programs leave them: columns by id, partitions by transforms, what can't be written."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import fs as pafs
from tests.pipeline.landing.rounds import Run, produce, rows, run
from tests.support.processes import BrokerProcess

from ottla_client.sync import Producer
from ottla_pipeline.audit import audit
from ottla_pipeline.commands import pipeline
from ottla_pipeline.landing import Landing, compact, land
from ottla_pipeline.landing.errors import LandingError, SchemaRefused, TableChanged
from ottla_pipeline.landing.job_plan import table_of
from ottla_pipeline.landing.tables import Names, iceberg, open_table
from ottla_pipeline.landing.tables.layout import field_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NewTopic = Callable[..., str]


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(prefix="ice")


@pytest.fixture
def landing(broker: BrokerProcess, topic: str, tmp_path: Path) -> Landing:
    return Landing(
        broker.bootstrap,
        f"{tmp_path}/lake/default.t",
        (topic,),
        format="iceberg",
        values="json",
        schema="id INT, p STRING",
    )


def opened(landing: Landing) -> Any:
    """pyiceberg's table."""
    table: Any = table_of(landing)
    table.refresh()
    return table._table


def pairs(landing: Landing, *names: str) -> list[tuple[Any, ...]]:
    """What pyiceberg reads."""
    found = opened(landing).scan().to_arrow().to_pylist()
    return sorted(tuple(row[name] for name in names) for row in found)


def test_data_files_have_field_ids_at_every_depth(landing: Landing, topic: str) -> None:
    job = replace(landing, schema="`a b` INT, s STRUCT<x: INT, l: ARRAY<STRUCT<y: STRING>>>")
    produce(job.bootstrap_servers, topic, [{"a b": 1, "s": {"x": 2, "l": [{"y": "z"}, None]}}])
    run(job)
    table = opened(job)
    (file,) = table.inspect.files().to_pylist()
    stored = pq.ParquetFile(file["file_path"]).schema_arrow
    ids = {one.field_id for one in table.schema().fields}
    assert {int(one.metadata[b"PARQUET:field_id"]) for one in stored} == ids
    assert len(set(field_ids(stored))) == 7
    assert stored.names[0] == "a_x20b", "as Iceberg's own writers have it"
    assert pairs(job, "a b", "_offset") == [(1, 0)]
    assert rows(job, "s") == [({"x": 2, "l": [{"y": "z"}, None]},)]


@pytest.mark.parametrize("change", ["renamed", "dropped"])
def test_a_file_without_field_ids_gives_no_value_to_another_column(
    landing: Landing, topic: str, tmp_path: Path, change: str
) -> None:
    produce(landing.bootstrap_servers, topic, [{"id": 1, "p": "new"}])
    run(landing)
    old = pa.table({"id": pa.array([0], pa.int32()), "p": ["old"]})
    pq.write_table(old, tmp_path / "old.parquet")
    opened(landing).add_files([str(tmp_path / "old.parquet")])
    with opened(landing).update_schema() as update:
        update.rename_column("p", "q") if change == "renamed" else update.delete_column("p")
    job = replace(landing, schema="id INT, p INT")
    produce(job.bootstrap_servers, topic, [{"id": 2, "p": 5}])
    run(job)
    wanted = [(0, None), (1, None), (2, 5)]
    assert pairs(job, "id", "p") == wanted
    compact(job.table, "iceberg")
    assert pairs(job, "id", "p") == wanted
    if change == "renamed":
        assert pairs(job, "id", "q") == [(0, "old"), (1, "new"), (2, None)]


def test_a_column_whose_name_differs_in_case_alone(landing: Landing, topic: str) -> None:
    from pyiceberg.types import StringType

    produce(landing.bootstrap_servers, topic, [{"id": 1, "p": "x"}])
    run(landing)
    with opened(landing).update_schema() as update:
        update.add_column("P", StringType())
    produce(landing.bootstrap_servers, topic, [{"id": 2, "p": "y"}])
    run(landing)
    assert pairs(landing, "id", "p", "P") == [(1, "x", None), (2, "y", None)]
    compact(landing.table, "iceberg")
    assert pairs(landing, "id", "p", "P") == [(1, "x", None), (2, "y", None)]


def test_a_wider_type_in_the_schema_widens_the_column_where_iceberg_can(landing: Landing, topic: str) -> None:
    narrow = {"id": 1, "f": 1.5, "d": "1.25", "s": {"x": 3, "l": [4, None]}}
    wide = {"id": 1 << 40, "f": 1e300, "d": "12345678.25", "s": {"x": 1 << 41, "l": [1 << 42], "y": "new"}}
    before = replace(landing, schema="id INT, f FLOAT, d DECIMAL(5,2), s STRUCT<x: INT, l: ARRAY<INT>>")
    after = replace(
        landing,
        schema="id BIGINT, f DOUBLE, d DECIMAL(10,2), s STRUCT<x: BIGINT, l: ARRAY<BIGINT>, y: STRING>",
    )
    for job, record in ((before, narrow), (after, wide), (before, narrow)):
        text = json.dumps(record).replace('"1.25"', "1.25").replace('"12345678.25"', "12345678.25")
        produce(job.bootstrap_servers, topic, [text.encode()])
        run(job)
    old = narrow | {"d": Decimal("1.25"), "s": {"x": 3, "l": [4, None], "y": None}}
    wanted = [tuple(one.values()) for one in (old, wide | {"d": Decimal("12345678.25")}, old)]
    for _ in range(2):
        assert rows(landing, *old) == wanted
        found = opened(landing).scan().to_arrow().sort_by("_offset").to_pylist()
        assert [tuple(row[name] for name in old) for row in found] == wanted
        compact(landing.table, "iceberg")
    assert [str(one.field_type) for one in opened(landing).schema().fields[:3]] == [
        "long", "double", "decimal(10, 2)",
    ]  # fmt: skip
    for kind in ("STRING", "DOUBLE", "DECIMAL(20,0)"):
        with pytest.raises(SchemaRefused, match=r"has the column id as BIGINT, the schema as \w+"):
            run(replace(landing, schema=f"id {kind}"))


def test_a_column_that_changes_between_writing_and_commit(landing: Landing, topic: str) -> None:
    """Nothing is landed in a column that is gone, and the files go."""
    from pyiceberg.types import StringType

    produce(landing.bootstrap_servers, topic, [{"id": 1, "p": "x"}])
    with Run(landing) as job:
        reports = job.read(job.plan())
        with opened(landing).update_schema() as update:
            update.delete_column("p")
        with opened(landing).update_schema() as update:
            update.add_column("p", StringType())
        with pytest.raises(TableChanged, match="another program has changed its columns"):
            job.commit(reports)
    assert not list(Path(landing.table).parent.rglob("part-*.parquet"))
    run(landing)
    assert pairs(landing, "id", "p") == [(1, "x")]


def test_a_job_goes_on_when_the_table_changes_between_its_batches(
    spark: SparkSession, landing: Landing, topic: str
) -> None:
    produce(landing.bootstrap_servers, topic, [{"id": n, "p": str(n)} for n in range(6)])
    seen: list[int] = []

    def change(done: Any) -> None:
        seen.append(done.rows)
        table = opened(landing)
        if len(seen) == 1:
            with table.update_schema() as update:
                update.rename_column("p", "q")
        if len(seen) == 2:
            first = table.inspect.snapshots().to_pylist()[0]["snapshot_id"]
            table.manage_snapshots().set_current_snapshot(first).commit()

    done = land(replace(landing, max_records=2), spark, change)
    assert seen == [2] * 5
    assert done.offsets == {topic: {0: 6}}
    assert pairs(landing, "id", "p", "q") == [(n, str(n), None) for n in range(6)]


@pytest.mark.parametrize("change", ["renamed", "dropped", "replaced"])
def test_a_table_that_gets_another_name_while_a_job_lands(landing: Landing, topic: str, change: str) -> None:
    """Nothing is landed again under the old name; a table that was dropped begins again with the next run."""
    produce(landing.bootstrap_servers, topic, [{"id": 1}])
    run(landing)
    new = replace(landing, table=landing.table.replace("default.t", "other.u"))
    catalog = opened(landing).catalog
    catalog.create_namespace("other")
    produce(landing.bootstrap_servers, topic, [{"id": 2}])
    with Run(landing) as job:
        if change == "dropped":
            catalog.drop_table("default.t")
        else:
            catalog.rename_table("default.t", "other.u")
        if change == "replaced":
            catalog.create_table("default.t", pa.schema([("id", pa.int32())]))
        said = {
            "renamed": f"doesn't exist any more: another program has renamed it; land in {new.table}$",
            "dropped": "doesn't exist any more: another program has dropped it$",
            "replaced": "default.t is another table now: ",
        }
        with pytest.raises(LandingError, match=said[change]):
            job.committer.look()
        with pytest.raises(LandingError, match=said[change]):
            job.batch()
    if change == "renamed":
        for _ in range(2):
            with pytest.raises(LandingError, match=f"are those of {new.table}: another program has renamed"):
                run(landing)
        assert catalog.list_tables("default") == []
    if change != "dropped":
        run(new)
        compact(new.table, "iceberg", older_than=0)
        assert pairs(new, "id", "_offset") == [(1, 0), (2, 1)]
    else:
        run(landing)
        assert pairs(landing, "id", "_offset") == [(1, 0), (2, 1)]


def test_empty_texts_in_partitions(landing: Landing, topic: str, tmp_path: Path) -> None:
    """Delta and folders have no way to say that a text is empty: Spark, too, makes it null there."""
    produce(landing.bootstrap_servers, topic, [{"id": 1, "p": ""}, {"id": 2}, {"id": 3, "p": "x"}])
    for form in ("iceberg", "delta", "parquet"):
        place = landing.table if form == "iceberg" else str(tmp_path / form)
        job = replace(landing, table=place, format=form, partition_by=("p",))
        run(job)
        assert rows(job, "id", "p") == [(1, "" if form == "iceberg" else None), (2, None), (3, "x")]
    assert {one.name for one in (tmp_path / "parquet").glob("p=*")} == {"p=__HIVE_DEFAULT_PARTITION__", "p=x"}
    assert pairs(landing, "_offset", "p") == [(0, ""), (1, None), (2, "x")]


@pytest.mark.parametrize("transform", ["identity", "day", "hour", "month", "year", "bucket[4]"])
def test_times_that_no_folder_can_be_named_by_are_dead_letters(
    landing: Landing, topic: str, tmp_path: Path, transform: str
) -> None:
    """The others land. pyiceberg, which is to name the folder, knows the years 1 to 9999."""
    landing = replace(landing, dead_letters=f"table:{tmp_path / 'dead'}")
    run(landing)
    with opened(landing).update_spec() as update:
        update.add_field("_timestamp", transform, "part")
    # The last one has microseconds for milliseconds.
    times = [0, 253_402_300_799_999, 253_402_300_800_000, 1_796_000_000_000_000]
    with Producer(landing.bootstrap_servers) as producer:
        producer.send_batch(topic, [b"{}"] * len(times), timestamps_ms=times).result()
    done = run(landing)
    assert done is not None
    dead = 2 if transform in ("identity", "day", "hour") else 0
    assert (done.rows, done.dead_letters) == (len(times) - dead, dead)


def test_the_tables_own_partitioning_is_used(landing: Landing, topic: str) -> None:
    produce(landing.bootstrap_servers, topic, [{"id": 1, "p": "abc"}])
    run(landing)
    with opened(landing).update_spec() as update:
        update.add_field("p", "truncate[2]", "cut")
        update.add_field("_timestamp", "day", "day")
    produce(landing.bootstrap_servers, topic, [{"id": 2, "p": "abc"}, {"id": 3, "p": "abd"}, {"id": 4}])
    run(landing)
    found = opened(landing).inspect.partitions().to_pylist()
    day = dt.datetime.now(dt.UTC).date()
    assert sorted(str(one["partition"]["cut"]) for one in found if one["spec_id"] == 1) == ["None", "ab"]
    assert all(abs((one["partition"]["day"] - day).days) <= 1 for one in found if one["spec_id"] == 1)
    with pytest.raises(
        SchemaRefused, match=r"partitioned by truncate\[2\]\(p\), day\(_timestamp\), not by p"
    ):
        run(replace(landing, partition_by=("p",)))
    compact(landing.table, "iceberg")
    assert pairs(landing, "id", "_offset") == [(n + 1, n) for n in range(4)]


def test_names_that_iceberg_reserves_are_refused(landing: Landing, topic: str) -> None:
    produce(landing.bootstrap_servers, topic, [{"id": 1}])
    for job in (replace(landing, names=Names(partition="_partition")), replace(landing, schema="_pos INT")):
        with pytest.raises(SchemaRefused, match="Iceberg reserves the name"):
            run(job)
    run(landing)
    with pytest.raises(SchemaRefused, match="can't have a column _file: Iceberg reserves"):
        run(replace(landing, schema="id INT, _file STRING"))


def test_the_reserved_name_of_an_old_table_is_renamed(
    landing: Landing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "_RESERVED", set())
    produce(landing.bootstrap_servers, topic, [{"id": 1}])
    run(replace(landing, names=Names(partition="_partition")))
    monkeypatch.undo()
    produce(landing.bootstrap_servers, topic, [{"id": 2}])
    run(landing)
    assert pairs(landing, "_partition", "_offset") == [(0, 0), (0, 1)], "it goes on with the old name"
    command = ["rename-column", "--table", landing.table, "--format", "iceberg"]
    assert CliRunner().invoke(pipeline, command).output.endswith(": _partition is _topic_partition now\n")
    again = CliRunner().invoke(pipeline, command)
    assert (again.exit_code, again.output.count("\n")) == (1, 1)
    produce(landing.bootstrap_servers, topic, [{"id": 3}])
    run(landing)
    assert pairs(landing, "_topic_partition", "_offset") == [(0, 0), (0, 1), (0, 2)]
    (found,) = audit(landing.bootstrap_servers, table_of(landing)).partitions
    assert found.clean


def test_files_are_where_the_catalogue_says_with_its_keys(tmp_path: Path) -> None:
    """As a catalogue over S3 says: its endpoint and keys are for data files, too."""
    catalog = {
        "type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/lake",
        "s3.endpoint": "http://127.0.0.1:1", "s3.access-key-id": "key", "s3.secret-access-key": "hidden",
        "s3.region": "r",
    }  # fmt: skip
    table = open_table("iceberg", "default.t", catalog=catalog)
    table.create(pa.schema([("id", pa.int32()), *Names().fields()]), [])
    assert isinstance(table.place.open()[0], pafs.LocalFileSystem)
    assert dict(table.place.options) == {
        key: value for key, value in catalog.items() if key.startswith("s3.")
    }
    assert "hidden" not in repr(table.place)
    store, path = replace(table.place, uri="s3://bucket/t/data").open()
    assert isinstance(store, pafs.S3FileSystem)
    assert path == "bucket/t/data"
