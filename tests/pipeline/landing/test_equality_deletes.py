"""Equality deletes in Iceberg tables: the rows that they delete are in no answer, and don't return."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.types import LongType, StringType
from tests.pipeline.landing.equality_deletes import delete_at, delete_equal
from tests.pipeline.landing.rounds import produce, rows, run
from tests.support.processes import BrokerProcess

from ottla_pipeline.audit import audit
from ottla_pipeline.landing import Landing, compact, compaction
from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.job_plan import table_of
from ottla_pipeline.landing.tables import iceberg_deletes

NewTopic = Callable[..., str]


class Lake:
    """A topic, the table that it is landed in, and which rows there should be."""

    def __init__(self, broker: BrokerProcess, topic: str, folder: Path) -> None:
        self.landing = Landing(
            broker.bootstrap,
            f"{folder}/lake/default.t",
            (topic,),
            format="iceberg",
            values="json",
            schema="id INT, p STRING, x DOUBLE, s STRUCT<a: INT, b: STRING>",
        )
        self._topic = topic

    @property
    def table(self) -> Any:
        """pyiceberg's."""
        table: Any = table_of(self.landing)
        table.refresh()
        return table._table

    def land(self, *records: dict[str, Any], **changes: Any) -> None:
        self.landing = replace(self.landing, **changes)
        produce(self.landing.bootstrap_servers, self._topic, records)
        run(self.landing)

    def delete(self, columns: list[str], *keys: dict[str, Any], **where: Any) -> None:
        delete_equal(self.table, columns, keys, **where)

    def check(self, *offsets: int) -> None:
        """These rows are left, before compaction and after it; afterwards, deletes that apply to nothing are gone."""
        self.check_read(*offsets)
        done = compact(self.landing.table, "iceberg")
        self.check_read(*offsets)
        if done.rewritten:
            assert self.deletes() == self.applying()

    def deletes(self) -> set[str]:
        """The files of deletes that the table has."""
        table = self.table
        return {
            entry.data_file.file_path
            for one in table.current_snapshot().manifests(table.io)
            if one.content == ManifestContent.DELETES
            for entry in one.fetch_manifest_entry(table.io)
        }

    def applying(self) -> set[str]:
        plan = iceberg_deletes.Plan(self.table)
        return set(plan.deletes_of(plan.tasks))

    def check_read(self, *offsets: int) -> None:
        table = table_of(self.landing)
        found = table.scan(["_offset"]).read_all().column(0).drop_null()
        assert sorted(found.to_pylist()) == list(offsets)
        (report,) = audit(self.landing.bootstrap_servers, table).partitions
        removed = {one for start, end in report.removed for one in range(start, end)}
        assert removed == set(range(report.table_end or 0)) - set(offsets)
        assert report.clean


@pytest.fixture
def lake(broker: BrokerProcess, new_topic: NewTopic, tmp_path: Path) -> Lake:
    return Lake(broker, new_topic(prefix="equal"), tmp_path)


def test_rows_with_the_key_are_gone_and_later_ones_stay(lake: Lake) -> None:
    lake.land({"id": 1}, {"id": 2}, {}, {"id": 3})
    lake.delete(["id"], {"id": 1}, {"id": None}, {"id": 7})
    lake.land({"id": 1}, {"id": 7}, {})
    lake.check(1, 3, 4, 5, 6)
    assert len(lake.table.inspect.data_files()) == 1
    assert len(lake.table.scan().to_arrow()) == 5, (
        "no delete applies any more, so pyiceberg can read it again"
    )
    lake.delete(["id"], {"id": 7})
    lake.delete(["id"], {"id": 1}, {"id": 3})
    lake.land({"id": 3})
    lake.check(1, 6, 7)
    lake.land({"id": 8})
    lake.delete(["id"], {"id": 8})
    lake.check(1, 6, 7)
    assert len(lake.table.scan().to_arrow()) == 3


def test_compaction_drops_the_files_of_deletes_that_apply_to_nothing(lake: Lake) -> None:
    """Those of a file that isn't joined stay, with the numbers that say to what they apply."""
    lake.land({"id": 1, "p": "a"}, {"id": 1, "p": "b"}, {"id": 2, "p": "b"}, partition_by=("p",))
    lake.land({"id": 3, "p": "a"})
    for name in ("a", "b"):
        lake.delete(["id"], {"id": 1}, partition=[name])
    by_partition = {
        one["partition"]["p"]: one["file_path"] for one in lake.table.inspect.data_files().to_pylist()
    }
    delete_at(lake.table, by_partition["b"], [1], partition=["b"])
    assert len(lake.deletes()) == 3
    lake.check(3)
    assert len(lake.deletes()) == 2, "those of b, whose one file stays as it is"
    summary = lake.table.current_snapshot().summary
    assert (summary["removed-delete-files"], summary["removed-equality-deletes"]) == ("1", "1")
    lake.land({"id": 1, "p": "b"})
    lake.check(3, 4)
    assert lake.deletes() == set()
    lake.land({"id": 5, "p": "b"})
    assert all(
        one.content == ManifestContent.DATA for one in lake.table.current_snapshot().manifests(lake.table.io)
    )


def test_an_upsert(lake: Lake) -> None:
    """Flink deletes the key and adds the new row in one commit."""
    lake.land({"id": 1}, {"id": 2})
    for n, text in ((2, "old"), (2, "new"), (1, "other")):
        lake.delete(["id"], {"id": n}, new=[{"id": n, "p": text}])
    table = table_of(lake.landing)
    wanted = [(1, "other"), (2, "new")]
    for _ in range(2):
        table.refresh()
        assert (
            sorted((row["id"], row["p"]) for row in table.scan(["id", "p"]).read_all().to_pylist()) == wanted
        )
        compact(lake.landing.table, "iceberg")
    lake.land({"id": 2})
    lake.check(2)


def test_keys_of_two_columns_and_of_others(lake: Lake) -> None:
    nan, zero = float("nan"), {"x": 0.0}
    lake.land(
        {"id": 1, "p": "a"}, {"id": 1}, {"p": "a"}, {"id": 2, "p": "a"}, {}, zero, {"x": -0.0}, {"x": 1.5}
    )
    lake.delete(["p", "id"], {"id": 1, "p": "a"}, {"id": 1, "p": None}, {"id": 2, "p": "b"})
    lake.check(2, 3, 4, 5, 6, 7)
    lake.land({"id": 3}, {"id": 4})
    lake.delete(["x", "id"], {"x": 0.0, "id": None}, {"x": nan, "id": None})
    lake.delete(["x"], {"x": 1.5})
    lake.check(2, 3, 4, 6, 8, 9)


def test_nan_is_nan(lake: Lake) -> None:
    lake.land({"id": 1, "x": 1.0}, {"id": 2})
    foreign = pa.Table.from_pylist([{"x": float("nan")}], schema=lake.table.schema().as_arrow())
    lake.table.append(foreign)
    lake.delete(["x"], {"x": float("nan")})
    lake.check(0, 1)


def test_partitions(lake: Lake) -> None:
    """A delete is for the rows of its partition, and for all if its spec has none."""
    lake.land({"id": 1, "p": "a"}, {"id": 1, "p": "b"})
    with lake.table.update_spec() as update:
        update.add_identity("p")
    lake.land({"id": 1, "p": "a"}, {"id": 1, "p": "b"}, {"id": 1}, {"id": 2, "p": "a"}, {"id": 2, "p": "b"})
    lake.delete(["id"], {"id": 1}, partition=["a"])
    lake.check_read(0, 1, 3, 4, 5, 6)
    lake.delete(["id"], {"id": 1}, partition=[None])
    lake.check_read(0, 1, 3, 5, 6)
    lake.delete(["id"], {"id": 2}, spec_id=0)
    lake.delete(["id"], {"id": 2}, {"id": 1}, partition=["c"])
    lake.land({"id": 2, "p": "a"})
    with lake.table.update_spec() as update:
        update.remove_field("p")
        update.add_field("id", "void", "removed")
    lake.delete(["id"], {"id": 2}, partition=[None])
    lake.land({"id": 2, "p": "a"})
    lake.check(0, 1, 3, 8)


def test_columns_that_change_after_the_delete(lake: Lake) -> None:
    """They are found by their ids, whatever they are called now, and though they are gone."""
    lake.land({"id": 1, "p": "a"}, {"id": 2, "p": "b"}, {"id": 3, "p": "c"}, {"id": 4, "p": "d"})
    lake.delete(["id"], {"id": 1})
    lake.delete(["p"], {"p": "b"})
    with lake.table.update_schema() as update:
        update.rename_column("id", "number")
    with lake.table.update_schema() as update:
        update.update_column("number", field_type=LongType())
    with lake.table.update_schema() as update:
        update.delete_column("p")
    with lake.table.update_schema() as update:
        update.add_column("p", StringType())
    lake.check_read(2, 3)
    lake.delete(["p"], {"p": "c"})
    lake.delete(["number"], {"number": 4})
    lake.check_read(2)
    # The new p is null in the old rows, which have no such column.
    lake.land({"number": 5, "p": "e"}, schema="number BIGINT, p STRING")
    lake.delete(["p"], {"p": None})
    lake.check(4)


def test_position_deletes_of_the_same_files(lake: Lake) -> None:
    lake.land(*({"id": n} for n in range(6)))
    (file,) = lake.table.inspect.data_files().to_pylist()
    delete_at(lake.table, file["file_path"], [1, 2])
    with lake.table.update_schema() as update:
        update.add_column("q", StringType())
    lake.land({"id": 6, "q": "x"}, schema="id INT, q STRING")
    lake.delete(["id"], {"id": 3}, {"id": 1})
    lake.check_read(0, 4, 5, 6)
    assert rows(lake.landing, "q") == [(None,)] * 3 + [("x",)]
    lake.delete(["q"], {"q": None})
    lake.check(6)


def test_fields_of_structs(lake: Lake) -> None:
    lake.land({"s": {"a": 1, "b": "x"}}, {"s": {"a": 2}}, {"s": {"b": "x"}}, {"id": 1, "s": {"a": 3}})
    lake.delete(["s.a", "id"], {"id": None, "s": {"a": 1}}, {"id": 1, "s": {"a": 2}})
    lake.check_read(1, 2, 3)
    lake.delete(["s.b"], {"s": {"b": "x"}})
    lake.check_read(1, 3)
    lake.delete(["s.a", "s.b"], {"s": {"a": 2, "b": None}})
    with lake.table.update_schema() as update:
        update.delete_column("s.b")
    with lake.table.update_schema() as update:
        update.update_column("s.a", field_type=LongType())
    lake.check_read(3)
    lake.land({"s": {"a": 2}}, schema="id INT, s STRUCT<a: BIGINT>")
    with lake.table.update_schema() as update:
        update.delete_column("s")
    lake.check(3, 4)


def test_what_cannot_be_read_is_named(lake: Lake) -> None:
    """As after a clean-up of the table's metadata."""
    lake.land({"id": 1})
    lake.delete(["id"], {"id": 1}, equality_ids=[1, 99])
    lake.land({"id": 2})
    error = r"it deletes rows by the fields \[1, 99\], which no schema of the table has"
    for refused in (lambda: rows(lake.landing, "id"), lambda: compact(lake.landing.table, "iceberg")):
        with pytest.raises(LandingError, match=rf"default\.t: .*delete-.*\.parquet can't be read: {error}"):
            refused()


@pytest.mark.parametrize("what", ["data", "deletes"])
def test_files_in_avro_are_refused_before_anything_is_done(lake: Lake, what: str) -> None:
    """Landing goes on; compaction would have joined the files of another partition before it ended."""
    for _ in range(2):
        lake.land({"id": 1, "p": "a"}, {"id": 1, "p": "b"}, partition_by=("p",))
    if what == "deletes":
        lake.delete(["id"], {"id": 1}, partition=["b"], file_format=FileFormat.AVRO)
    else:
        delete_equal(
            lake.table,
            ["id"],
            [{"id": 9}],
            partition=["b"],
            content=DataFileContent.DATA,
            file_format=FileFormat.AVRO,
        )
    lake.land({"id": 2, "p": "b"})
    before = lake.table.current_snapshot().snapshot_id
    for refused in (
        lambda: audit(lake.landing.bootstrap_servers, table_of(lake.landing)),
        lambda: compact(lake.landing.table, "iceberg"),
    ):
        with pytest.raises(
            LandingError, match=r"default\.t: \S+/delete-\S+ can't be read, as it is in Avro"
        ) as said:
            refused()
        assert "\n" not in str(said.value)
    assert lake.table.current_snapshot().snapshot_id == before


def while_joined(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> list[str]:
    """Do this once, while the first files are joined. Returns the partitions that are joined."""
    rewrite = compaction._rewrite
    joined: list[str] = []

    def slow(*arguments: Any) -> Any:
        made = rewrite(*arguments)
        joined.append(arguments[1][0].partition.get("p"))
        if len(joined) == 1:
            change()
        return made

    monkeypatch.setattr(compaction, "_rewrite", slow)
    return joined


def test_a_delete_while_files_are_joined(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It applies to the files that they become, and what was inserted with it stays."""
    for n in range(1, 4):
        lake.land({"id": n})
    lake.delete(["id"], {"id": 1})

    def change() -> None:
        lake.delete(["id"], {"id": 2})
        lake.land({"id": 2}, {"id": 3})
        lake.delete(["id"], {"id": 4})

    while_joined(monkeypatch, change)
    assert compact(lake.landing.table, "iceberg").after == 2
    monkeypatch.undo()
    lake.check_read(2, 3, 4)
    lake.delete(["id"], {"id": 3})
    lake.check(3)


def test_a_delete_that_is_rolled_back_while_files_are_joined(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land({"id": 1})
    lake.land({"id": 2})
    before = lake.table.current_snapshot().snapshot_id
    lake.delete(["id"], {"id": 2})
    while_joined(monkeypatch, lambda: lake.table.manage_snapshots().set_current_snapshot(before).commit())
    with pytest.raises(LandingError, match="another program has changed it; run it again"):
        compact(lake.landing.table, "iceberg")
    monkeypatch.undo()
    lake.check(0, 1)


def test_a_delete_while_files_get_into_other_partitions(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the old partition, which new files are no part of, or of a new one, which old files aren't."""
    lake.land({"id": 1, "p": "a"}, {"id": 2, "p": "a"}, partition_by=("p",))
    lake.land({"id": 1, "p": "a"})
    with lake.table.update_spec() as update:
        update.add_field("id", "bucket[1]", "b")
    lake.landing = replace(lake.landing, partition_by=())
    while_joined(monkeypatch, lambda: lake.delete(["id"], {"id": 1}, partition=["a", 0]))
    compact(lake.landing.table, "iceberg")
    monkeypatch.undo()
    lake.check_read(0, 1, 2)
    with lake.table.update_spec() as update:
        update.remove_field("b")
    lake.land({"id": 3, "p": "a"})
    before = lake.table.metadata.default_spec_id
    lake.land({"id": 1, "p": "a"})
    with lake.table.update_spec() as update:
        update.remove_field("p")
    while_joined(monkeypatch, lambda: lake.delete(["id"], {"id": 1}, spec_id=before, partition=["a"]))
    with pytest.raises(LandingError, match="another program has changed it; run it again"):
        compact(lake.landing.table, "iceberg")
    monkeypatch.undo()
    lake.check(0, 1, 2, 3)


def test_a_delete_while_files_of_another_partition_are_joined(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        lake.land(
            {"id": 1, "p": "a"},
            {"id": 1, "p": "b"},
            {"id": 2, "p": "a"},
            {"id": 2, "p": "b"},
            partition_by=("p",),
        )
    other = {"a": "b", "b": "a"}
    joined = while_joined(monkeypatch, lambda: lake.delete(["id"], {"id": 2}, partition=[other[joined[0]]]))
    compact(lake.landing.table, "iceberg")
    monkeypatch.undo()
    assert sorted(joined) == ["a", "b"]
    lake.check(*((0, 1, 2, 4, 5, 6) if joined[0] == "a" else (0, 1, 3, 4, 5, 7)))
    assert len(lake.table.inspect.data_files()) == 2


def test_a_delete_without_its_columns_deletes_nothing(lake: Lake) -> None:
    """It isn't taken for one of rows that are null there."""
    lake.land({"id": 1}, {"p": "x"})
    lake.delete(["id"], {"id": 1})
    (path,) = Path(lake.landing.table).parent.rglob("delete-*.parquet")
    found = pq.read_table(path)
    pq.write_table(
        found.cast(pa.schema([found.schema.field(0).with_metadata({"PARQUET:field_id": "99"})])), path
    )
    with pytest.raises(LandingError, match="can't be read: Field is required"):
        rows(lake.landing, "_offset")


@pytest.mark.parametrize("partitioned", [False, True])
def test_whatever_is_deleted(lake: Lake, monkeypatch: pytest.MonkeyPatch, partitioned: bool) -> None:
    """Against a list of the rows that are left, with few keys looked up at once."""
    monkeypatch.setattr(iceberg_deletes, "_AT_ONCE", 2)
    chance = random.Random(11)
    texts, numbers = ("a", "b", None), (*range(6), None)
    left: list[tuple[int, dict[str, Any]]] = []
    count = 0
    for step in range(24):
        if step % 2 == 0:
            new = [{"id": chance.choice(numbers), "p": chance.choice(texts)} for _ in range(5)]
            lake.land(*new)
            left += enumerate(new, count)
            count += len(new)
            if step == 0 and partitioned:
                with lake.table.update_spec() as update:
                    update.add_identity("p")
                lake.land({"id": 9, "p": None})
                compact(lake.landing.table, "iceberg")
                left.append((count, {"id": 9, "p": None}))
                count += 1
            continue
        columns = chance.choice((["id"], ["p", "id"], ["id", "p"], ["p"]))
        keys = [{"id": chance.choice(numbers), "p": chance.choice(texts)} for _ in range(3)]
        keys = [{name: key[name] for name in columns} for key in keys]
        everywhere = not partitioned or chance.random() < 0.5
        where = chance.choice(texts)
        lake.delete(columns, *keys, **({"spec_id": 0} if everywhere else {"partition": [where]}))
        left = [
            (offset, row)
            for offset, row in left
            if {name: row[name] for name in columns} not in keys or not (everywhere or row["p"] == where)
        ]
        (lake.check if step % 8 == 7 else lake.check_read)(*(offset for offset, _ in left))
