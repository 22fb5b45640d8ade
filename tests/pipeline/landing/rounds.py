"""Runs a landing job without Spark, one step at a time, with the real planning, tasks and commits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from ottla_client.sync import Producer
from ottla_pipeline.landing.batches import BatchCommitter
from ottla_pipeline.landing.dead_letter_sink import sink_of
from ottla_pipeline.landing.deadletters import from_records
from ottla_pipeline.landing.evolution import NewColumns
from ottla_pipeline.landing.job_plan import plan_job, source_options, table_of, task_of, with_new
from ottla_pipeline.landing.settings import BatchDone, Landing
from ottla_pipeline.landing.tables import Table
from ottla_pipeline.landing.task import COLUMNS, Report, land_ranges
from ottla_pipeline.reading import OffsetRange, ReadSettings, read
from ottla_pipeline.source.cluster_queries import ClusterQueries, ids_of
from ottla_pipeline.source.offsets import Offsets
from ottla_pipeline.source.planning import plan


class Run:
    """One run of a job, from its table's end on."""

    def __init__(self, landing: Landing, run_id: str = "run") -> None:
        self.landing = landing
        self.done: list[BatchDone] = []
        self.broker = ClusterQueries(landing.bootstrap_servers, landing.client)
        try:
            self.job_plan = plan_job(landing, self.broker, run_id)
            self.sink = sink_of(landing, self.job_plan.table)
            self.committer = BatchCommitter(
                landing, self.job_plan, self.broker, self.sink, run_id, self.done.append
            )
            self.committer.start()
        except BaseException:
            self.broker.close()
            raise
        self.options = source_options(landing)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.committer.close()
        self.broker.close()

    def plan(self) -> Sequence[OffsetRange]:
        """What there is behind the table's end."""
        at = self.committer.offsets()
        topics = self.broker.topics(self.options.topics)
        ids = ids_of(topics)
        end = self.broker.latest(list(at), self.landing.isolation)
        return plan(self.broker, self.options, Offsets(at, ids), Offsets(end, ids)).ranges

    def read(self, ranges: Iterable[OffsetRange]) -> list[Report]:
        """The tasks."""
        task = task_of(self.landing, self.job_plan.table, self.job_plan.values)
        reading = self.options.read_settings(COLUMNS)
        return [report for one in ranges for report in land_ranges(task, [one], reading)]

    def read_together(self, ranges: Iterable[OffsetRange]) -> list[Report]:
        """One task of all ranges."""
        task = task_of(self.landing, self.job_plan.table, self.job_plan.values)
        return land_ranges(task, ranges, self.options.read_settings(COLUMNS))

    def commit(self, reports: Iterable[Report], batch_id: int = 0) -> BatchDone | None:
        """The driver's part."""
        before = len(self.done)
        self.committer.batch(lambda: reports, batch_id)
        return self.done[-1] if len(self.done) > before else None

    def batch(self, batch_id: int = 0) -> BatchDone | None:
        """All that there is, in one batch; with new columns as the job has them."""
        while True:
            reports = self.read(self.plan())
            try:
                return self.commit(reports, batch_id)
            except NewColumns as news:
                plan = self.job_plan
                plan.values = with_new(self.landing, plan.table, plan.values, news.schema)


def run(landing: Landing) -> BatchDone | None:
    """A run of one batch."""
    with Run(landing) as one:
        return one.batch()


def produce(servers: str, topic: str, values: Sequence[Any], partition: int = 0) -> None:
    """Values that aren't bytes are sent as JSON."""
    made = [one if isinstance(one, bytes) or one is None else json.dumps(one).encode() for one in values]
    with Producer(servers) as producer:
        producer.send_batch(topic, made, partition=partition).result()


def rows(where: Landing | Table, *names: str) -> list[tuple[Any, ...]]:
    """Columns of the table's rows, by topic, partition and offset."""
    table = table_of(where) if isinstance(where, Landing) else where
    table.refresh()
    found = table.dataset().to_table().to_pylist()
    order = [
        name
        for name in ("_topic", "topic", "_topic_partition", "_partition", "partition", "_offset", "offset")
        if found and name in found[0]
    ]
    found.sort(key=lambda row: tuple(row[name] for name in order))
    return [tuple(row[name] for name in names) for row in found]


def offsets(landing: Landing, topic: str) -> list[list[int]]:
    """The offsets of the rows of each partition, sorted."""
    found: dict[int, list[int]] = {}
    for where, partition, offset in rows(landing, "_topic", "_topic_partition", "_offset"):
        if where == topic:
            found.setdefault(partition, []).append(offset)
    return [sorted(found[partition]) for partition in sorted(found)]


def sent_to_topic(landing: Landing) -> list[dict[str, Any]]:
    """The rows of a topic of dead letters."""
    assert landing.dead_letters is not None
    topic = landing.dead_letters.removeprefix("topic:")
    columns = ("key", "value", "offset", "timestamp", "headers")
    settings = ReadSettings(landing.bootstrap_servers, {}, columns, segments="never")
    found: list[dict[str, Any]] = []
    with ClusterQueries(landing.bootstrap_servers) as broker:
        for at, end in broker.latest(broker.partitions([topic])).items():
            for batch in read(OffsetRange(topic, "", at.partition, 0, end), settings):
                found += from_records(batch, topic, at.partition).to_pylist()
    return found
