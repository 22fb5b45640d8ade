"""A Spark session that takes statements from its input, a line of JSON each, and prints rows or errors as JSON.

What SQL can't do is an object in place of a statement: the arguments of :func:`delete_equal`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def delete_equal(
    spark: Any,
    table: str,
    columns: list[str],
    keys: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    spec_id: int | None,
    partition: dict[str, Any],
) -> None:
    """Commit keys as an equality delete, and rows with it, by Iceberg's own writers, as Flink upserts.

    ``partition``: what a row of the delete's partition has in the columns that the spec is by.
    """
    java = spark._jvm
    iceberg = java.org.apache.iceberg
    found = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    schema = found.schema()
    ids = spark.sparkContext._gateway.new_array(java.int, len(columns))
    for at, name in enumerate(columns):
        ids[at] = schema.findField(name).fieldId()
    narrow = iceberg.types.TypeUtil.select(schema, java.java.util.HashSet([*ids]))
    change = found.newRowDelta()

    def record(of: Any, values: dict[str, Any]) -> Any:
        made = iceberg.data.GenericRecord.create(of)
        for name, value in values.items():
            made.setField(name, value)
        return made

    def writer(spec: Any, make: str, row: dict[str, Any]) -> Any:
        key = iceberg.PartitionKey(spec, schema)
        key.partition(record(schema, row))
        path = f"{found.location()}/data/java-{java.java.util.UUID.randomUUID()}.parquet"
        out = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(found.io().newOutputFile(path))
        factory = iceberg.data.GenericAppenderFactory(schema, spec, ids, narrow, None)
        return getattr(factory, make)(out, iceberg.FileFormat.PARQUET, key)

    spec = found.spec() if spec_id is None else found.specs().get(spec_id)
    deletes = writer(spec, "newEqDeleteWriter", partition)
    for one in keys:
        deletes.write(record(narrow, one))
    deletes.close()
    change.addDeletes(deletes.toDeleteFile())
    for row in rows:
        data = writer(found.spec(), "newDataWriter", row)
        data.write(record(schema, row))
        data.close()
        change.addRows(data.toDataFile())
    change.commit()


def main(folder: str, jars: str, java: str) -> None:
    from pyspark.sql import SparkSession

    # Whatever else writes to the output is no answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": java,
        "spark.local.dir": f"{folder}/.spark",
        "spark.sql.warehouse.dir": f"{folder}/.warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
        "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ottla": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ottla.type": "jdbc",
        "spark.sql.catalog.ottla.uri": f"jdbc:sqlite:{folder}/catalog.db?journal_mode=WAL&busy_timeout=30000",
        "spark.sql.catalog.ottla.jdbc.schema-version": "V1",
        "spark.sql.catalog.ottla.warehouse": f"file://{folder}",
        "spark.sql.catalog.ottla.cache-enabled": "false",
        # It keeps deleted keys in the type that their column had, and can't compare them once the type is wider.
        "spark.sql.iceberg.executor-cache.enabled": "false",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    builder: Any = SparkSession.builder.master("local[1]").appName("lakehouse")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    print(json.dumps({"rows": []}), file=answers)
    for line in sys.stdin:
        # A connection of Iceberg's JDBC catalogue may keep on seeing SQLite's file as it was: the next one doesn't.
        spark._jsparkSession.sessionState().catalogManager().reset()
        try:
            request = json.loads(line)
            if isinstance(request, dict):
                delete_equal(spark, **request)
            rows = [list(row) for row in spark.sql(request).collect()] if isinstance(request, str) else []
            print(json.dumps({"rows": rows}, default=str), file=answers)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:20000]}), file=answers)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
