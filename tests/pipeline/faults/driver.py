"""A landing job's driver as a program: it prints its batches, and kills itself at a given point.

``python -m tests.pipeline.faults.driver '{"landing": {…}, "die": ["after commit", 2]}'``: the second time that it comes
there, by SIGKILL, as a machine that loses its power.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from tests.pipeline.conftest import SETTINGS

from ottla_pipeline.landing import Landing, land
from ottla_pipeline.landing.batches import BatchCommitter
from ottla_pipeline.landing.dead_letter_sink import DeadLetterSink, TableSink
from ottla_pipeline.landing.tables import open_table
from ottla_pipeline.source.groups import GroupCommits

POINTS = (
    "before tasks", "before commit", "after commit", "before dead letters", "amid dead letters",
    "after dead letters", "before group", "after group",
)  # fmt: skip


def die_at(point: str, times: int, table: type) -> None:
    """Have this process killed there."""
    left = [times]

    def reached() -> None:
        left[0] -= 1
        if left[0] == 0:
            print("dying", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def before(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            reached()
            return method(*args, **options)

        setattr(owner, name, wrapped)

    def after(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            found = method(*args, **options)
            reached()
            return found

        setattr(owner, name, wrapped)

    places: dict[str, Callable[[], None]] = {
        "before tasks": lambda: before(BatchCommitter, "batch"),
        "before commit": lambda: before(table, "_write"),
        "after commit": lambda: after(table, "_write"),
        "before dead letters": lambda: before(TableSink, "deliver"),
        "amid dead letters": lambda: before(DeadLetterSink, "discard"),
        "after dead letters": lambda: after(DeadLetterSink, "deliver_pending"),
        "before group": lambda: before(GroupCommits, "done"),
        "after group": lambda: after(GroupCommits, "done"),
    }
    places[point]()


def main() -> None:
    reported = json.loads(sys.argv[1])
    landing = Landing(**reported["landing"])
    if reported["die"] is not None:
        point, times = reported["die"]
        die_at(point, times, type(open_table(landing.format, landing.table)))
    builder = SparkSession.builder.master("local[2]").appName("faults")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    print("ready", flush=True)
    done = land(landing, spark, lambda batch: print(f"batch {batch.batch_id}", flush=True))
    print(f"done {done.rows}", flush=True)


if __name__ == "__main__":
    main()
