"""Spark with Delta changes a table while a job lands in it and compacts it: no row is lost, doubled or returned."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.brokers import Broker
from harness.java import Unavailable
from harness.lakehouse import LakehouseSpark, SQLError
from tests.pipeline.landing.delta_changes import Lake, Program, Refused
from tests.pipeline.landing.rounds import produce, run

from ottla_pipeline.landing import Landing, compact

STEPS = int(os.environ.get("OTTLA_FAULT_ROUNDS", "15"))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakehouseSpark]:
    try:
        session = LakehouseSpark(tmp_path_factory.mktemp("lakehouse"))
    except Unavailable as lack:
        pytest.skip(str(lack))
    with session:
        yield session


class SparkSql(Program):
    def __init__(self, spark: LakehouseSpark, place: str) -> None:
        self._spark = spark
        self._table = f"delta.`{place}`"

    def _do(self, statement: str) -> list[list[Any]]:
        try:
            return self._spark.sql(statement.replace("TABLE_NAME", self._table))
        except SQLError as error:
            raise Refused(str(error).splitlines()[0][:200]) from error

    def delete(self, start: int, end: int) -> None:
        self._do(f"DELETE FROM TABLE_NAME WHERE _offset >= {start} AND _offset < {end}")

    def update(self, start: int, end: int, column: str, value: str) -> None:
        self._do(f"UPDATE TABLE_NAME SET {column} = '{value}' WHERE _offset >= {start} AND _offset < {end}")

    def append(self, column: str, value: str) -> None:
        self._do(f"INSERT INTO TABLE_NAME ({column}) VALUES ('{value}')")

    def restore(self, version: int) -> None:
        self._do(f"RESTORE TABLE TABLE_NAME TO VERSION AS OF {version}")

    def read(self, column: str) -> list[tuple[int | None, Any]]:
        return [(row[0], row[1]) for row in self._do(f"SELECT _offset, {column} FROM TABLE_NAME")]

    def others(self, lake: Lake, rng: random.Random) -> dict[str, Callable[[], None]]:
        number = len(lake.said)
        plain = {
            "optimize": "OPTIMIZE TABLE_NAME",
            "z-order": "OPTIMIZE TABLE_NAME ZORDER BY (_offset)",
            "purge": "REORG TABLE TABLE_NAME APPLY (PURGE)",
            "vacuum": "VACUUM TABLE_NAME",
            "cluster": "ALTER TABLE TABLE_NAME CLUSTER BY (_offset)",
            "add a column": f"ALTER TABLE TABLE_NAME ADD COLUMN extra{number} STRUCT<a: INT, b: STRING> FIRST",
            "move a column": "ALTER TABLE TABLE_NAME ALTER COLUMN id AFTER _offset",
            "widen": "ALTER TABLE TABLE_NAME ALTER COLUMN id TYPE BIGINT",
            "check": f"ALTER TABLE TABLE_NAME ADD CONSTRAINT c{number} CHECK (id IS NULL OR id >= 0)",
            "comment": "ALTER TABLE TABLE_NAME ALTER COLUMN id COMMENT 'a number'",
        }
        properties = {
            "vectors": "'delta.enableDeletionVectors' = 'true'",
            "no vectors": "'delta.enableDeletionVectors' = 'false'",
            "mapping": "'delta.columnMapping.mode' = 'name'",
            "widening": "'delta.enableTypeWidening' = 'true'",
            "changes": "'delta.enableChangeDataFeed' = 'true'",
            "times": "'delta.enableInCommitTimestamps' = 'true'",
            "checkpoints": "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '5'",
        }
        found = {name: self._later(text) for name, text in plain.items()}
        for name, text in properties.items():
            found[name] = self._later(f"ALTER TABLE TABLE_NAME SET TBLPROPERTIES ({text})")
        return found | {
            "rename": lambda: self._rename(lake),
            "drop and add": lambda: self._drop_and_add(lake),
            "merge": lambda: self._merge(lake, rng),
            "overwrite": lambda: self._overwrite(lake),
        }

    def _later(self, statement: str) -> Callable[[], None]:
        def do() -> None:
            self._do(statement)

        return do

    def _rename(self, lake: Lake) -> None:
        new = f"value{len(lake.said)}"
        self._do(f"ALTER TABLE TABLE_NAME RENAME COLUMN {lake.now.column} TO {new}")
        lake.now = replace(lake.now, column=new)

    def _drop_and_add(self, lake: Lake) -> None:
        """A column of the same name, in which no row has a value."""
        self._do(f"ALTER TABLE TABLE_NAME DROP COLUMN {lake.now.column}")
        self._do(f"ALTER TABLE TABLE_NAME ADD COLUMN {lake.now.column} STRING")
        lake.now = replace(
            lake.now, rows=dict.fromkeys(lake.now.rows), foreign=tuple(None for _ in lake.now.foreign)
        )

    def _merge(self, lake: Lake, rng: random.Random) -> None:
        if len(lake.now.rows) < 2:
            return
        gone, kept = rng.sample(sorted(lake.now.rows), 2)
        self._do(
            f"MERGE INTO TABLE_NAME AS t USING (SELECT * FROM VALUES ({gone}), ({kept}) AS s(at)) AS s "
            f"ON t._offset = s.at WHEN MATCHED AND s.at = {gone} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET t.{lake.now.column} = 'merged'"
        )
        rows = {at: value for at, value in lake.now.rows.items() if at != gone} | {kept: "merged"}
        lake.now = replace(lake.now, rows=rows)

    def _overwrite(self, lake: Lake) -> None:
        self._do("INSERT OVERWRITE TABLE_NAME SELECT * FROM TABLE_NAME WHERE _offset % 7 <> 3")
        lake.now = replace(
            lake.now, rows={at: value for at, value in lake.now.rows.items() if at % 7 != 3}, foreign=()
        )


def test_spark_reads_columns_that_a_job_has_made_wider(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path, spark: LakehouseSpark
) -> None:
    topic, place = new_topic(), str(tmp_path / "lake")
    job = Landing(
        broker.address, place, topics=(topic,), values="json", schema="a INT, s STRUCT<x: INT, l: ARRAY<INT>>"
    )
    produce(broker.address, topic, [{"a": 1, "s": {"x": 2, "l": [3]}}])
    run(job)
    spark.sql(
        f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true', "
        "'delta.columnMapping.mode' = 'name')"
    )
    big = 1 << 40
    produce(broker.address, topic, [{"a": big, "s": {"x": big, "l": [big], "y": "new"}}])
    run(replace(job, schema="a BIGINT, s STRUCT<x: BIGINT, l: ARRAY<BIGINT>, y: STRING>"))
    wanted = [[1, 2, 3, None], [big, big, big, "new"]]
    for _ in range(2):
        read = f"SELECT a, s.x, s.l[0], s.y FROM delta.`{place}` ORDER BY _offset"
        assert spark.sql(read) == wanted
        assert spark.sql(f"SELECT a FROM delta.`{place}` WHERE s.x > 5 AND a > 5") == [[big]]
        compact(place)
    spark.sql(f"OPTIMIZE delta.`{place}`")
    assert spark.sql(read) == wanted


def test_a_delta_table_that_spark_changes(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path, spark: LakehouseSpark
) -> None:
    seed = int(os.environ.get("OTTLA_FAULT_SEED", "1"))
    topic, place = new_topic(), str(tmp_path / "lake")
    job = Landing(broker.address, place, topics=(topic,), values="json")
    Lake(job, topic, SparkSql(spark, place), random.Random(seed)).steps(STEPS)
