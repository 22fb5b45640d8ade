"""A batch on the driver: from its tasks' reports to one commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from ottla_client import TopicPartition
from ottla_client.errors import ClientError
from ottla_pipeline.landing.dead_letter_sink import DeadLetterSink
from ottla_pipeline.landing.errors import Collision, DataGone, NotLanded, TableChanged, Undecided
from ottla_pipeline.landing.evolution import NewColumns
from ottla_pipeline.landing.job_plan import JobPlan
from ottla_pipeline.landing.ledger import LandedRange, LandedRanges, OffsetsByTopic, by_topic
from ottla_pipeline.landing.parsing.shapes import Shape
from ottla_pipeline.landing.settings import BatchDone, Landing
from ottla_pipeline.landing.tables import Commit
from ottla_pipeline.landing.task import Report
from ottla_pipeline.source.cluster_queries import ClusterQueries
from ottla_pipeline.source.groups import GroupCommits

log = logging.getLogger("ottla_pipeline")


class BatchCommitter:
    """Commits batches. Its state is where this run last saw the table end; one thread's."""

    def __init__(
        self,
        landing: Landing,
        plan: JobPlan,
        cluster: ClusterQueries,
        sink: DeadLetterSink | None,
        run_id: str,
        done: Callable[[BatchDone], None],
    ) -> None:
        self._table = plan.table
        self._cluster = cluster
        self._sink = sink
        self._run_id = run_id
        self._done = done
        self._gaps = not landing.fail_on_data_loss
        self._isolation = landing.isolation
        self._group = (
            GroupCommits(cluster, landing.group, required=False) if landing.group is not None else None
        )
        self._seen: dict[TopicPartition, int] = {}

    def start(self) -> None:
        """Finish what a crashed run has left: deliver its dead letters, and commit the table's offsets to the group."""
        self._table.refresh()
        if self._sink is not None:
            self._sink.deliver_pending()
        self._seen = self._table.state().ledger.offsets()
        if self._group is not None:
            self._group.done(self._seen)

    def offsets(self) -> dict[TopicPartition, int]:
        return dict(self._seen)

    def look(self) -> None:
        """Read the table's newest version. Raises TableChanged if another program has taken landed offsets back."""
        self._table.refresh()
        self._table.check_seen(self._seen)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def batch(self, run: Callable[[], Iterable[Report]], batch_id: int) -> None:
        """Run a batch's tasks, and commit the files in their reports.

        Raises NewColumns if records have fields that the table has no columns for, and LandingError if the batch can't
        be landed; nothing was committed then.
        """
        began = time.perf_counter()
        reports = list(run())
        read = time.perf_counter()
        if not reports:
            return
        landed = _landed(reports)
        try:
            _check(reports)
            self._commit(reports, landed, batch_id)
        except Undecided:
            raise
        except (NotLanded, Collision, DataGone, NewColumns, TableChanged):
            # After any other error the table may have the files: they stay, and compaction deletes orphans.
            self._discard(reports)
            raise
        committed = time.perf_counter()
        if self._sink is not None and any(report.dead_files for report in reports):
            self._sink.deliver_pending()
        delivered = time.perf_counter()
        if self._group is not None:
            self._group.done(self._seen)
        ended = time.perf_counter()
        latest, lag = self._left()
        self._done(
            BatchDone(
                batch_id=batch_id,
                rows=sum(report.rows for report in reports),
                bytes=sum(report.bytes for report in reports),
                files=sum(len(report.files) for report in reports),
                dead_letters=sum(report.dead for report in reports),
                start=by_topic({at: ranges[0].start for at, ranges in landed.items()}),
                end=by_topic({at: ranges[-1].end for at, ranges in landed.items()}),
                latest=latest,
                lag=lag,
                seconds=ended - began,
                durations={
                    "read": read - began,
                    "commit": committed - read,
                    "dead_letters": delivered - committed,
                    "group": ended - delivered,
                },
            )
        )

    def _commit(self, reports: list[Report], landed: LandedRanges, batch_id: int) -> None:
        dead = [one for report in reports for one in report.dead_files]
        state = self._table.commit(
            Commit(
                files=[one for report in reports for one in report.files],
                layout=reports[0].layout,
                landed=landed,
                topic_ids={report.partition.topic: report.topic_id for report in reports},
                batch_id=batch_id,
                run_id=self._run_id,
                notes=self._sink.note(dead) if self._sink is not None else {},
                gaps=self._gaps,
                seen=self._seen,
            )
        )
        self._seen = state.ledger.offsets()

    def _discard(self, reports: list[Report]) -> None:
        for report in reports:
            self._table.discard(report.files)
            if self._sink is not None:
                self._sink.discard(report.dead_files)

    def _left(self) -> tuple[OffsetsByTopic, int | None]:
        """The ends of the logs, and the lag; empty and None if brokers don't answer, since they are only shown."""
        try:
            latest = by_topic(self._cluster.latest(list(self._seen), self._isolation))
            records = [one.records for one in self._cluster.lag_of(self._seen).values()]
        except ClientError as error:
            log.info("where the topics end is not known at this moment: %s", error)
            return {}, None
        return latest, sum(one for one in records if one is not None)


def _check(reports: list[Report]) -> None:
    for report in reports:
        if report.failed is not None:
            raise NotLanded(report.failed)
    unknown = Shape()
    for report in reports:
        if report.unknown is not None:
            unknown.merge(Shape.from_json(report.unknown))
    if len(new := unknown.columns()):
        raise NewColumns(new)


def _landed(reports: list[Report]) -> LandedRanges:
    """The ranges that each partition got, in order; ranges that touch become one."""
    found: dict[TopicPartition, list[LandedRange]] = {}
    for report in sorted(reports, key=lambda one: (one.partition, one.start)):
        ranges = found.setdefault(report.partition, [])
        one = LandedRange(report.start, report.end, report.count, report.total, report.dead)
        if ranges and ranges[-1].end == one.start:
            ranges[-1] = ranges[-1].joined(one)
        else:
            ranges.append(one)
    return {at: tuple(ranges) for at, ranges in found.items()}
