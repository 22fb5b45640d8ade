"""A Spark session that takes statements from its input, a line of JSON each, and prints rows or errors as JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


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
            rows = [list(row) for row in spark.sql(json.loads(line)).collect()]
            print(json.dumps({"rows": rows}, default=str), file=answers)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:20000]}), file=answers)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
