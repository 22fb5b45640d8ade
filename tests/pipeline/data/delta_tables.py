"""Makes ``delta_tables.tar.xz``: Delta tables as Spark leaves them. For Spark 4.0 with Delta 4.0.0 on its class path:

python delta_tables.py FOLDER, then: tar cJf delta_tables.tar.xz --exclude='*.crc' -C FOLDER .
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

OWN = "_topic STRING, _topic_partition INT, _offset BIGINT, _timestamp TIMESTAMP"
WHEN = "TIMESTAMP '2026-01-01 00:00:00'"
MAPPED = "'delta.columnMapping.mode' ="
VECTORS = "'delta.enableDeletionVectors' = 'true'"


def session() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC")
    for name, value in {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.parquet.compression.codec": "uncompressed",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def statements(folder: Path) -> list[str]:
    """The tables: ``{name}`` in braces is replaced by the table's name in SQL."""

    def rows(first: int, end: int, values: str) -> str:
        return f"SELECT /*+ COALESCE(1) */ {values}, 'flights', 0, id, {WHEN} FROM RANGE({first}, {end}) ORDER BY id"

    own = f"'flights', 0, %d, {WHEN}"
    made = [
        f"CREATE TABLE {{mapped}} (id INT, name STRING, plane STRUCT<year: INT, `a.b`: STRING>, legs ARRAY<STRUCT<to: "
        f"STRING>>, day STRING, {OWN}) USING delta PARTITIONED BY (day) TBLPROPERTIES ({MAPPED} 'name')",
        f"INSERT INTO {{mapped}} SELECT 1, 'Ada', STRUCT(1990, 'x'), ARRAY(STRUCT('JFK')), 'd 1', {own % 0}",
        "ALTER TABLE {mapped} RENAME COLUMN name TO full_name",
        "ALTER TABLE {mapped} RENAME COLUMN plane.year TO built",
        "ALTER TABLE {mapped} RENAME COLUMN day TO date",
        f"INSERT INTO {{mapped}} SELECT 2, 'Bob', STRUCT(1991, 'y'), ARRAY(), '', {own % 1}",
        "ALTER TABLE {mapped} DROP COLUMN id",
        "ALTER TABLE {mapped} ADD COLUMN id STRING FIRST",
        f"INSERT INTO {{mapped}} SELECT 'three', 'Cy', NULL, NULL, 'd/2', {own % 2}",
        # The mode "id", from the beginning.
        f"CREATE TABLE {{by_id}} (id INT, name STRING, {OWN}) USING delta TBLPROPERTIES ({MAPPED} 'id')",
        f"INSERT INTO {{by_id}} SELECT 1, 'Ada', {own % 0}",
        "ALTER TABLE {by_id} RENAME COLUMN name TO full_name",
        # Arrays, bitmaps and runs in one vector; one in the checkpoint, and a newer one after it.
        f"CREATE TABLE {{vectors}} (id INT, {OWN}) USING delta TBLPROPERTIES ({VECTORS}, "
        "'delta.checkpointInterval' = '3')",
        f"INSERT INTO {{vectors}} {rows(0, 200_000, 'CAST(id AS INT)')}",
        f"INSERT INTO {{vectors}} {rows(200_000, 200_010, 'CAST(id AS INT)')}",
        "DELETE FROM {vectors} WHERE id % 3 = 0 AND id < 60000 OR id BETWEEN 70000 AND 140000 OR "
        "id IN (150001, 200003)",
        "DELETE FROM {vectors} WHERE id = 199999",
        # All features at once that Ottla writes to.
        f"CREATE TABLE {{many}} (id SMALLINT, name STRING, day STRING, {OWN}) USING delta PARTITIONED BY (day) "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = 'name', {VECTORS}, 'delta.enableTypeWidening' = 'true', "
        "'delta.enableInCommitTimestamps' = 'true', 'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '4', "
        "'delta.feature.vacuumProtocolCheck' = 'supported', 'delta.enableChangeDataFeed' = 'false')",
        f"INSERT INTO {{many}} {rows(0, 20, 'CAST(id AS SMALLINT), CAST(id AS STRING), CAST(id % 2 AS STRING)')}",
        "ALTER TABLE {many} ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE {many} RENAME COLUMN name TO text",
        "DELETE FROM {many} WHERE id IN (3, 4, 5)",
        f"INSERT INTO {{many}} {rows(20, 30, 'id + 10000000000, CAST(id AS STRING), CAST(id % 2 AS STRING)')}",
        f"CREATE TABLE {{clustered}} (id INT, {OWN}) USING delta CLUSTER BY (id)",
        f"INSERT INTO {{clustered}} {rows(0, 5, 'CAST(id AS INT)')}",
        f"CREATE TABLE {{checked}} (amount DOUBLE, n INT NOT NULL, code VARCHAR(3), st STRUCT<a: INT NOT NULL>, {OWN}) "
        "USING delta",
        "ALTER TABLE {checked} ADD CONSTRAINT positive CHECK (amount > 0 AND n < 100)",
        f"CREATE TABLE {{odd_check}} (amount DOUBLE, {OWN}) USING delta",
        "ALTER TABLE {odd_check} ADD CONSTRAINT rounded CHECK (round(amount) = amount)",
        f"CREATE TABLE {{defaults}} (a INT DEFAULT 5, {OWN}) USING delta TBLPROPERTIES "
        "('delta.feature.allowColumnDefaults' = 'supported')",
        f"CREATE TABLE {{row_tracking}} (a INT, {OWN}) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        f"CREATE TABLE {{iceberg_compat}} (a INT, {OWN}) USING delta TBLPROPERTIES "
        "('delta.enableIcebergCompatV2' = 'true', 'delta.columnMapping.mode' = 'name')",
        f"CREATE TABLE {{variant}} (a VARIANT, {OWN}) USING delta",
        # What others do to a table without features: rows of their own, old timestamps, an empty partition value.
        f"CREATE TABLE {{foreign}} (a INT, p STRING, {OWN}) USING delta PARTITIONED BY (p)",
        "INSERT INTO {foreign} VALUES (1, '', 'flights', 0, 0, TIMESTAMP '0001-01-01 00:00:00')",
        "INSERT INTO {foreign} VALUES (2, 'x y', 'flights', 0, 1, TIMESTAMP '9999-12-31 23:59:59')",
        "INSERT INTO {foreign} (a) VALUES (3)",
    ]
    names = {line.split("{")[1].split("}")[0] for line in made if "{" in line}
    places = {name: f"delta.`{folder / name}`" for name in names}
    return [line.format(**places) for line in made]


def declared(spark: Any, folder: Path, name: str, column: str, kind: str, make: str, *values: Any) -> None:
    """A table with a column that SQL can't declare without a catalogue."""
    delta = spark._jvm.io.delta.tables.DeltaTable
    builder = delta.create(spark._jsparkSession).location(str(folder / name))
    for one in ["ts TIMESTAMP", *OWN.split(", ")]:
        builder = builder.addColumn(*one.split(" "))
    made = getattr(delta.columnBuilder(spark._jsparkSession, column).dataType(kind), make)(*values).build()
    builder.addColumn(made).execute()


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    spark = session()
    for line in statements(folder):
        spark.sql(line).collect()
    declared(spark, folder, "generated", "d", "DATE", "generatedAlwaysAs", "CAST(ts AS DATE)")
    declared(spark, folder, "identity", "i", "BIGINT", "generatedAlwaysAsIdentity")
    spark.stop()


if __name__ == "__main__":
    main()
