"""Spark with Iceberg's own runtime changes tables that Ottla lands in, and reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.brokers import HOST, Broker
from harness.java import Unavailable
from harness.lakehouse import LakehouseSpark, SQLError
from tests.pipeline.landing.rounds import produce, run

from ottla_pipeline.audit import audit
from ottla_pipeline.landing import Landing, LandingError, compact, compaction
from ottla_pipeline.landing.job_plan import table_of
from ottla_pipeline.landing.tables import Names, iceberg

NewTopic = Callable[..., str]
DDL = "id INT, name STRING, ts TIMESTAMP, inner STRUCT<a: INT, b: STRING>"


class Lake:
    """A topic, a table that it is landed in, and Spark."""

    def __init__(self, broker: Broker, spark: LakehouseSpark, folder: Path, topic: str) -> None:
        self.spark = spark
        self.topic = topic
        self.name = topic.replace("-", "_")
        self.table = f"ottla.default.{self.name}"
        self.landing = Landing(
            f"{HOST}:{broker.port}",
            f"{folder}/default.{self.name}",
            (topic,),
            format="iceberg",
            values="json",
            schema=DDL,
        )
        self._next = 0

    def sql(self, query: str) -> list[list[Any]]:
        return self.spark.sql(query.replace("TABLE_", self.table))

    def call(self, procedure: str, arguments: str) -> list[list[Any]]:
        return self.sql(f"CALL ottla.system.{procedure}(table => 'default.{self.name}'{arguments})")

    def create(self, columns: str, rest: str = "") -> None:
        """The table, by Spark."""
        self.sql(
            f"CREATE TABLE TABLE_ ({columns}, _topic STRING, _topic_partition INT, _offset BIGINT, "
            f"_timestamp TIMESTAMP) USING iceberg {rest}"
        )

    def land(self, count: int = 3, **changes: Any) -> None:
        """Records of the next ids, in one batch."""
        values = [
            {
                "id": n,
                "name": f"n{n}",
                "ts": f"2013-01-{n % 28 + 1:02}T0{n % 10}:30:00Z",
                "inner": {"a": n, "b": f"b{n}"},
            }
            | {key: change(n) for key, change in changes.items()}
            for n in range(self._next, self._next + count)
        ]
        self._next += count
        produce(self.landing.bootstrap_servers, self.topic, values)
        run(self.landing)

    def rows(self, columns: str, where: str = "true") -> list[list[Any]]:
        return self.sql(f"SELECT {columns} FROM TABLE_ WHERE {where} ORDER BY _offset")

    def audit(self) -> Any:
        (found,) = audit(self.landing.bootstrap_servers, table_of(self.landing)).partitions
        return found

    def removed(self) -> list[tuple[int, int]]:
        """The records that other programs have removed; no other is missing."""
        found = self.audit()
        assert not list(found.missing)
        return list(found.removed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[LakehouseSpark]:
    try:
        session = LakehouseSpark(folder)
    except Unavailable as lack:
        pytest.skip(str(lack))
    with session:
        yield session


@pytest.fixture
def lake(broker: Broker, spark: LakehouseSpark, folder: Path, new_topic: NewTopic) -> Lake:
    return Lake(broker, spark, folder, new_topic())


def test_spark_reads_and_changes_what_was_landed(lake: Lake) -> None:
    lake.land(4)
    assert [row[:2] for row in lake.rows("*")] == [[n, f"n{n}"] for n in range(4)]
    lake.sql("DELETE FROM TABLE_ WHERE id = 0")
    lake.sql("UPDATE TABLE_ SET name = 'new' WHERE id = 1")
    lake.sql(
        "MERGE INTO TABLE_ t USING (SELECT 2 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = 'merged'"
    )
    lake.land(1)
    assert lake.rows("id, name") == [[1, "new"], [2, "merged"], [3, "n3"], [4, "n4"]]
    assert lake.removed() == [(0, 1)]


def test_columns_are_renamed_dropped_and_return_with_another_type(lake: Lake) -> None:
    lake.land()
    lake.sql("ALTER TABLE TABLE_ RENAME COLUMN name TO title")
    lake.sql("ALTER TABLE TABLE_ ALTER COLUMN id TYPE BIGINT")
    lake.sql("ALTER TABLE TABLE_ RENAME COLUMN inner.b TO text")
    lake.sql("ALTER TABLE TABLE_ ADD COLUMN inner.c DOUBLE FIRST")
    lake.sql("ALTER TABLE TABLE_ ALTER COLUMN ts FIRST")
    lake.landing = replace(
        lake.landing, schema="id BIGINT, title STRING, ts TIMESTAMP, inner STRUCT<a: INT, text: STRING>"
    )
    lake.land(id=lambda n: 2**40 + n, title=lambda n: f"t{n}", inner=lambda n: {"a": n, "text": "new"})
    wanted = [[n, f"n{n}", n, f"b{n}", None] for n in range(3)]
    wanted += [[2**40 + n, f"t{n}", n, "new", None] for n in range(3, 6)]
    columns = "id, title, inner.a, inner.text, inner.c"
    assert lake.rows(columns) == wanted
    lake.sql("ALTER TABLE TABLE_ DROP COLUMN title")
    lake.landing = replace(lake.landing, schema="id BIGINT, title INT, ts TIMESTAMP")
    lake.land(title=lambda n: n)
    assert lake.rows("title") == [[None]] * 6 + [[n] for n in range(6, 9)]
    assert compact(lake.landing.table, "iceberg").after == 1
    assert lake.rows("id, inner.a, inner.text, inner.c")[:6] == [[row[0], *row[2:]] for row in wanted]
    assert lake.rows("title") == [[None]] * 6 + [[n] for n in range(6, 9)]
    assert lake.audit().clean


MERGE_ON_READ = ", ".join(f"'write.{one}.mode'='merge-on-read'" for one in ("delete", "update", "merge"))


def test_deleted_rows_do_not_return(lake: Lake) -> None:
    lake.create(DDL, f"TBLPROPERTIES ({MERGE_ON_READ})")
    for _ in range(3):
        lake.land()
    lake.sql("DELETE FROM TABLE_ WHERE id IN (0, 4)")
    lake.sql("UPDATE TABLE_ SET name = 'new' WHERE id = 1")
    wanted = [[n, "new" if n == 1 else f"n{n}"] for n in range(9) if n not in (0, 4)]
    assert lake.rows("id, name") == wanted
    assert compact(lake.landing.table, "iceberg").after == 1
    assert lake.sql("SELECT count(*) FROM TABLE_.delete_files") == [[0]]
    assert lake.rows("id, name") == wanted
    lake.sql("DELETE FROM TABLE_ WHERE id = 8")
    lake.land(1)
    compact(lake.landing.table, "iceberg")
    assert lake.rows("id, name") == [*wanted[:-1], [9, "n9"]]
    assert lake.removed() == [(0, 1), (4, 5), (8, 9)]


def test_equality_deletes_of_icebergs_own_writers(lake: Lake) -> None:
    """Ottla reads what Spark reads."""

    def delete(columns: list[str], *keys: dict[str, Any], **more: Any) -> None:
        lake.spark.delete_equal(lake.table, columns, keys, **more)

    def check(*wanted: list[Any]) -> None:
        table = table_of(lake.landing)
        mine = [list(row.values()) for row in table.scan(["id", "name"]).read_all().to_pylist()]
        theirs = lake.sql("SELECT id, name FROM TABLE_")
        assert sorted(map(str, mine)) == sorted(map(str, theirs)) == sorted(map(str, wanted))

    def name(n: int) -> str | None:
        return "ab"[n % 2] if n else None

    lake.create(DDL, f"TBLPROPERTIES ({MERGE_ON_READ})")
    lake.land(4, name=name)
    delete(["id"], {"id": 1}, rows=[{"id": 1, "name": "a"}])
    delete(["name", "id"], {"name": None, "id": 0}, {"name": "b", "id": 2})
    check([1, "a"], [2, "a"], [3, "b"])
    lake.sql("DELETE FROM TABLE_ WHERE id = 2")
    lake.sql("ALTER TABLE TABLE_ ADD PARTITION FIELD name")
    lake.land(4, name=name)
    lake.land(4, id=lambda n: n - 4, name=name)
    # In the partition alone, and in the whole table.
    delete(["id"], {"id": 4}, {"id": 5}, rows=[{"id": 5, "name": "a"}], partition={"name": "a"})
    delete(["id"], {"id": 7}, {"id": 1}, spec_id=0)
    left = [[3, "b"], [5, "a"], [5, "b"], [5, "b"], [6, "a"], [6, "a"]]
    check(*left)
    lake.sql("ALTER TABLE TABLE_ RENAME COLUMN id TO number")
    lake.sql("ALTER TABLE TABLE_ ALTER COLUMN number TYPE BIGINT")
    lake.sql("ALTER TABLE TABLE_ RENAME COLUMN number TO id")
    lake.land(1, name=lambda n: "c")
    check(*left, [12, "c"])
    assert compact(lake.landing.table, "iceberg").rewritten
    assert lake.sql("SELECT count(*) FROM TABLE_.delete_files") == [[0]]
    check(*left, [12, "c"])
    assert lake.removed() == [(0, 3), (4, 5), (7, 9), (11, 12)]
    lake.sql("ALTER TABLE TABLE_ SET TBLPROPERTIES ('format-version'='3')")
    delete(["name"], {"name": "c"}, spec_id=0)
    check(*left)
    assert lake.removed() == [(0, 3), (4, 5), (7, 9), (11, 13)]


def test_deletion_vectors_are_read_and_tables_that_have_them_refused(lake: Lake) -> None:
    lake.create(DDL, f"TBLPROPERTIES ({MERGE_ON_READ})")
    lake.land()
    lake.sql("ALTER TABLE TABLE_ SET TBLPROPERTIES ('format-version'='3')")
    lake.sql("DELETE FROM TABLE_ WHERE id = 1")
    assert lake.removed() == [(1, 2)]
    for refused in (lake.land, lambda: compact(lake.landing.table, "iceberg")):
        with pytest.raises(LandingError, match="format version 3"):
            refused()
    assert lake.rows("id") == [[0], [2]]


def test_rows_deleted_while_files_are_joined_do_not_return(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create(DDL, "TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    lake.land()
    lake.land()
    rewrite = compaction._rewrite

    def slow(*arguments: Any) -> Any:
        made = rewrite(*arguments)
        lake.sql("DELETE FROM TABLE_ WHERE id = 1")
        return made

    monkeypatch.setattr(compaction, "_rewrite", slow)
    with pytest.raises(LandingError, match="another program has changed it; run it again"):
        compact(lake.landing.table, "iceberg")
    monkeypatch.undo()
    compact(lake.landing.table, "iceberg")
    assert lake.rows("id") == [[n] for n in range(6) if n != 1]


def test_keys_deleted_while_files_are_joined(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """For Spark, too, this applies to the new files, and not to the row that came with it."""
    lake.create(DDL)
    lake.land()
    lake.land()
    rewrite = compaction._rewrite

    def slow(*arguments: Any) -> Any:
        made = rewrite(*arguments)
        lake.spark.delete_equal(lake.table, ["id"], [{"id": 1}, {"id": 5}], [{"id": 1, "name": "new"}])
        return made

    monkeypatch.setattr(compaction, "_rewrite", slow)
    assert compact(lake.landing.table, "iceberg").after == 2
    monkeypatch.undo()
    wanted = [[1, "new"], [0, "n0"], [2, "n2"], [3, "n3"], [4, "n4"]]
    assert lake.rows("id, name") == wanted
    lake.land(1)
    compact(lake.landing.table, "iceberg")
    assert lake.rows("id, name") == [*wanted, [6, "n6"]]
    assert lake.removed() == [(1, 2), (5, 6)]


def test_partitions_by_every_transform(lake: Lake) -> None:
    lake.create(DDL, "PARTITIONED BY (days(ts))")
    lake.land()
    specs = (
        ("DROP PARTITION FIELD days(ts)", "unpartitioned"),
        ("ADD PARTITION FIELD bucket(4, name)", "bucket of texts"),
        ("REPLACE PARTITION FIELD bucket(4, name) WITH bucket(3, id)", "bucket of numbers"),
        ("ADD PARTITION FIELD truncate(2, name)", "two fields"),
        ("DROP PARTITION FIELD truncate(2, name)", "void"),
        ("ADD PARTITION FIELD hours(ts)", "hours"),
        ("REPLACE PARTITION FIELD hours(ts) WITH months(ts)", "months"),
        ("REPLACE PARTITION FIELD months(ts) WITH years(ts)", "years"),
        ("ADD PARTITION FIELD name", "identity"),
        ("ADD PARTITION FIELD truncate(10, id)", "numbers cut"),
    )
    for change, _ in specs:
        lake.sql(f"ALTER TABLE TABLE_ {change}")
        lake.land(name=lambda n: None if n % 5 == 4 else "" if n % 5 == 3 else f"n{n}")
    count = 3 * (1 + len(specs))
    everything = lake.rows("id, name, ts")
    assert [row[0] for row in everything] == list(range(count))
    for n, name, ts in everything:
        same = f"id = {n} AND ts = TIMESTAMP '{ts}' AND name " + (
            f"= '{name}'" if name is not None else "IS NULL"
        )
        assert lake.rows("id", same) == [[n]], "no file is left out for its partition"
    for _ in range(2):
        compact(lake.landing.table, "iceberg")
        assert lake.rows("id, name, ts") == everything
    assert lake.audit().clean
    # Spark's own files of the same rows are in the same partitions.
    mine = lake.sql(
        "SELECT partition FROM TABLE_.files WHERE spec_id = (SELECT max(spec_id) FROM TABLE_.files)"
    )
    lake.sql("CREATE TABLE ottla.default.again USING iceberg AS SELECT * FROM TABLE_")
    lake.sql("DELETE FROM TABLE_")
    lake.sql("INSERT INTO TABLE_ SELECT * FROM ottla.default.again")
    theirs = lake.sql("SELECT partition FROM TABLE_.files")
    assert {str(one) for one in mine} <= {str(one) for one in theirs}


def test_what_was_rolled_back_is_landed_again(lake: Lake) -> None:
    lake.land()
    (before,) = lake.sql("SELECT snapshot_id FROM TABLE_.snapshots ORDER BY committed_at DESC LIMIT 1")
    lake.land()
    lake.call("rollback_to_snapshot", f", snapshot_id => {before[0]}")
    assert lake.rows("id") == [[0], [1], [2]]
    lake.land()
    assert lake.rows("id") == [[n] for n in range(9)]
    assert lake.audit().clean
    (first,) = lake.sql("SELECT snapshot_id FROM TABLE_.snapshots ORDER BY committed_at LIMIT 1")
    lake.call("set_current_snapshot", f", snapshot_id => {first[0]}")
    lake.land(1)
    assert lake.rows("id") == [[n] for n in range(10)]
    assert lake.audit().clean


def test_a_table_that_was_replaced_is_landed_from_the_start(lake: Lake) -> None:
    lake.land()
    lake.sql("CREATE OR REPLACE TABLE TABLE_ USING iceberg AS SELECT * FROM TABLE_ LIMIT 0")
    lake.land(1)
    assert lake.rows("id") == [[n] for n in range(4)]
    assert lake.audit().clean


def test_other_programs_files_and_expired_snapshots(lake: Lake) -> None:
    lake.land()
    lake.land()
    lake.sql("INSERT INTO TABLE_ SELECT 100, 'foreign', null, null, null, null, null, null")
    lake.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")
    lake.call("expire_snapshots", ", older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")
    lake.land()
    compact(lake.landing.table, "iceberg")
    assert sorted(lake.rows("id, name")) == [[n, f"n{n}"] for n in range(9)] + [[100, "foreign"]]
    assert lake.audit().clean


def test_what_cannot_be_written_is_refused_by_name(lake: Lake) -> None:
    lake.create("id INT, name STRING, data BINARY, must STRING NOT NULL")
    with pytest.raises(LandingError, match="column must NOT NULL"):
        lake.land()
    lake.sql("ALTER TABLE TABLE_ ALTER COLUMN must DROP NOT NULL")
    lake.sql("ALTER TABLE TABLE_ ADD PARTITION FIELD truncate(2, data)")
    with pytest.raises(LandingError, match=r"partitioned by truncate\[2\]\(data\)"):
        lake.land()
    lake.sql("ALTER TABLE TABLE_ DROP PARTITION FIELD truncate(2, data)")
    lake.land()
    assert lake.rows("id")[-1] == [8]


def test_the_old_name_of_the_partition_is_renamed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(partition="_partition")
    produce(lake.landing.bootstrap_servers, lake.topic, [{"id": 0}])
    with pytest.raises(LandingError, match="Iceberg reserves the name"):
        run(replace(lake.landing, names=names))
    lake.create(DDL)
    table = table_of(lake.landing)
    monkeypatch.setattr(iceberg, "_RESERVED", set())
    table.rename("_topic_partition", "_partition")
    monkeypatch.undo()
    lake.land()
    with pytest.raises(SQLError, match="_partition"):
        lake.rows("*")
    table.rename("_partition", "_topic_partition")
    lake.land()
    assert len(lake.rows("*")) == 7
    assert lake.audit().clean
