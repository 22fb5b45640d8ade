"""The driver that is killed: it lands the topics one after the other, then asks Spark.

It is told nothing of whether it was killed before. What it does it writes to standard output, a JSON object a line.
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
from ottla_pipeline.progress import Course

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "lakehouse"
# Flights of a batch: few enough that there is an amid to be killed in.
BATCH = 50_000


def say(event: str, **facts: Any) -> None:
    """A line to whoever has started it."""
    print(json.dumps({"event": event, **facts}), flush=True)


def land_all(spark: SparkSession, servers: str, lake: Path) -> None:
    """What the topics have, into a table each."""
    for source in data.SOURCES:
        course = Course()

        def told(done: BatchDone, topic: str = source.topic, course: Course = course) -> None:
            course.add(done)
            say("batch", topic=topic, rows=done.rows, seconds=round(done.seconds, 3), lag=course.lag)

        job = Landing(
            servers,
            str(lake / source.topic),
            topics=(source.topic,),
            values="json",
            schema=source.schema,
            group=GROUP,
            max_records=BATCH,
        )
        land(job, spark, told)


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
    land_all(spark, options.servers, options.lake)
    ask(spark, options.lake, options.result)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
