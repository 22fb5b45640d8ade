"""The driver that is killed: it lands one topic after the other, then runs the query in Spark.

It doesn't know whether it was killed before. It writes its progress to standard output, one JSON object per line.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pipeline import data
from ottla_pipeline.landing import BatchDone, Landing, land
from ottla_pipeline.landing.tables import open_table
from ottla_pipeline.progress import JobProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "lakehouse"


def say(event: str, **facts: Any) -> None:
    """Print an event for the parent process."""
    print(json.dumps({"event": event, **facts}), flush=True)


def land_all(spark: SparkSession, servers: str, lake: Path, batch: int) -> None:
    """Land each topic in a table of its own, in batches of at most ``batch`` records."""
    for source in data.SOURCES:
        progress = JobProgress()

        def report(done: BatchDone, topic: str = source.topic, progress: JobProgress = progress) -> None:
            progress.add(done)
            say("batch", topic=topic, rows=done.rows, seconds=round(done.seconds, 3), lag=progress.lag)

        job = Landing(
            servers,
            str(lake / source.topic),
            topics=(source.topic,),
            values="json",
            schema=source.schema,
            group=GROUP,
            max_records=batch,
        )
        land(job, spark, report)


def ask(spark: SparkSession, lake: Path, file: Path) -> None:
    """Join the tables and write the result to a file."""
    for source in data.SOURCES:
        table = open_table("delta", str(lake / source.topic))
        table.refresh()
        spark.read.parquet(*table.files()).createOrReplaceTempView(source.topic)
    file.write_text(json.dumps([row.asDict() for row in spark.sql(data.QUERY).collect()]))
    say("asked")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("lake", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("batch", type=int)
    options = parser.parse_args()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("make pipeline")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    say("started", version=spark.version)
    land_all(spark, options.servers, options.lake, options.batch)
    ask(spark, options.lake, options.result)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
