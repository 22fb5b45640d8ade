"""A streaming query that writes lines of files to a topic, one file in a transaction, as a program.

``python -m tests.pipeline.faults.sink_driver '{"folder": …, "checkpoint": …, "sink": {…}}'``
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from tests.pipeline.conftest import SETTINGS

from ottla_pipeline import register


def main() -> None:
    given = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").appName("faults")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    register(spark)
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(given["folder"])
    sink = lines.writeStream.format("ottla").options(**given["sink"]).trigger(availableNow=True)
    query = sink.option("checkpointLocation", given["checkpoint"]).start()
    print("ready", flush=True)
    query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main()
