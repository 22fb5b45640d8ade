"""Up to where the topics end now, batch after batch: planned here, with the source's own planning; tasks are Spark's.

A stream of Spark's would do the same. But it starts three processes of Python, one after the other, before the first
task, which takes longer than landing a million rows; and it writes a checkpoint, which a job doesn't need.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from ottla_pipeline.landing.settings import Landing
from ottla_pipeline.landing.start import Beginning
from ottla_pipeline.landing.task import COLUMNS, TaskSettings, land_ranges
from ottla_pipeline.source.offsets import by_topic
from ottla_pipeline.source.options import resolve
from ottla_pipeline.source.stream import OttlaStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla_pipeline.reading import Range, ReadSettings

Batch = Callable[[Callable[[], list[str]], str, int], None]


def run(
    spark: SparkSession,
    landing: Landing,
    beginning: Beginning,
    task: TaskSettings,
    batch: Batch,
    stop: threading.Event,
) -> None:
    """``batch`` gets what runs a batch's tasks and returns their reports, the name of this pass, and its number.

    Raises SourceError and ClientError of the planning, and what ``batch`` and Spark raise.
    """
    options = resolve(landing.source_options(json.dumps(by_topic(beginning.offsets))), stream=True)
    work = partial(_land, task, options.read_settings(COLUMNS))
    context = spark.sparkContext
    name = uuid.uuid4().hex
    reader = OttlaStreamReader(options, ())
    try:
        reader.prepareForTriggerAvailableNow()
        at = reader.initialOffset()
        for number in count():
            end = at if stop.is_set() else reader.latestOffset(at, reader.getDefaultReadLimit())
            if end == at:
                return
            tasks = [each.value for each in reader.partitions(at, end)]
            if tasks:
                batch(context.parallelize(tasks, len(tasks)).mapPartitions(work).collect, name, number)
            at = end
    finally:
        reader.stop()


def _land(task: TaskSettings, reading: ReadSettings, tasks: Iterable[tuple[Range, ...]]) -> Iterator[str]:
    """In a task."""
    for ranges in tasks:
        yield from land_ranges(task, ranges, reading)
