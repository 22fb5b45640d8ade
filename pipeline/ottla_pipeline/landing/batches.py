"""A batch on the driver: from its tasks' reports to one commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from ottla_client.errors import ClientError
from ottla_client.types import TopicPartition
from ottla_pipeline.landing.errors import Collision, DataGone, NotLanded
from ottla_pipeline.landing.failures import Grown
from ottla_pipeline.landing.graves import Grave
from ottla_pipeline.landing.ledger import Offsets, Place, Span, Spans
from ottla_pipeline.landing.parsing.formats import unpacked
from ottla_pipeline.landing.settings import BatchDone, Landing
from ottla_pipeline.landing.start import Beginning
from ottla_pipeline.landing.tables import Commit, DataFile
from ottla_pipeline.landing.task import Report
from ottla_pipeline.source.broker import Broker
from ottla_pipeline.source.groups import GroupCommits

log = logging.getLogger("ottla_pipeline")


class BatchCommitter:
    """Commits batches. Its state is the offsets that this run last saw in the table; called from one thread."""

    def __init__(
        self,
        landing: Landing,
        beginning: Beginning,
        broker: Broker,
        grave: Grave | None,
        run_id: str,
        done: Callable[[BatchDone], None],
    ) -> None:
        self._table = beginning.table
        self._broker = broker
        self._grave = grave
        self._run_id = run_id
        self._done = done
        self._gaps = not landing.fail_on_data_loss
        self._isolation = landing.isolation
        self._group = (
            GroupCommits(broker, landing.group, required=False) if landing.group is not None else None
        )
        self._seen: Offsets = {}

    def start(self) -> None:
        """Do what a run that crashed has left: bring its dead letters away, tell the group how far the table is."""
        self._table.refresh()
        if self._grave is not None:
            self._grave.settle()
        self._seen = self._table.offsets()
        if self._group is not None:
            self._group.done(self.offsets())

    def offsets(self) -> dict[TopicPartition, int]:
        """Where the table ends."""
        return {
            TopicPartition(topic, at): offset
            for topic, one in self._seen.items()
            for at, offset in one.items()
        }

    def close(self) -> None:
        """Let go of connections."""
        if self._grave is not None:
            self._grave.close()

    def batch(self, run: Callable[[], Iterable[str]], query_id: str, batch_id: int) -> None:
        """Run a batch's tasks, and commit what their reports tell of. Spark may come with the same batch again.

        :raises Grown: records have fields that the table has no columns for; nothing was committed.
        :raises LandingError: it can't be landed; nothing was committed.
        """
        began = time.perf_counter()
        reports = [Report.from_text(line) for line in run()]
        read = time.perf_counter()
        if not reports:
            return
        skipped = False
        try:
            self._check(reports)
            spans = _spans(reports)
            skipped = self._has(spans)
            if not skipped:
                self._commit(reports, spans, query_id, batch_id)
        except (NotLanded, Collision, DataGone, Grown):
            # Of other errors it isn't known whether the table has the files: they stay, and are cleaned as orphans.
            self._discard(reports)
            raise
        if skipped:
            log.info("batch %d is in %s already", batch_id, self._table.name)
            self._discard(reports)
        committed = time.perf_counter()
        if self._grave is not None and not skipped and any(report.dead_files for report in reports):
            self._grave.settle()
        buried = time.perf_counter()
        if self._group is not None:
            self._group.done(self.offsets())
        ended = time.perf_counter()
        kept = [] if skipped else reports
        self._done(
            BatchDone(
                batch_id=batch_id,
                rows=sum(report.rows for report in kept),
                bytes=sum(report.bytes for report in kept),
                files=sum(len(report.files) for report in kept),
                dead_letters=sum(report.dead for report in kept),
                start=_by_topic({place: one[0].start for place, one in spans.items()}),
                end=_by_topic({place: one[-1].end for place, one in spans.items()}),
                latest=self._latest(),
                seconds=ended - began,
                durations={
                    "read": read - began,
                    "commit": committed - read,
                    "dead_letters": buried - committed,
                    "group": ended - buried,
                },
                skipped=skipped,
            )
        )

    def _check(self, reports: list[Report]) -> None:
        for report in reports:
            if report.failed is not None:
                raise NotLanded(report.failed)
        unknown = [unpacked(report.unknown) for report in reports if report.unknown is not None]
        if unknown:
            raise Grown.of(unknown)

    def _has(self, spans: Spans) -> bool:
        """Whether the table has the batch already.

        :raises Collision: it has, and didn't when this run last looked: somebody else works on the same.
        """
        self._table.refresh()
        now = self._table.offsets(sorted({topic for topic, _ in spans}))
        has = all(now.get(topic, {}).get(at, -1) >= one[-1].end for (topic, at), one in spans.items())
        for (topic, at), one in spans.items():
            if now.get(topic, {}).get(at) != self._seen.get(topic, {}).get(at, now.get(topic, {}).get(at)):
                raise Collision(
                    f"{self._table.name} has {topic}-{at} up to offset {now[topic][at]} now, and this job did not land "
                    f"that (it has offsets {one[0].start} to {one[-1].end} to add): another job lands in it; stop one "
                    "of the two, and start the other again"
                )
        return has

    def _commit(self, reports: list[Report], spans: Spans, query_id: str, batch_id: int) -> None:
        files: list[DataFile] = [one for report in reports for one in report.files]
        dead = [one for report in reports for one in report.dead_files]
        state = self._table.commit(
            Commit(
                files=files,
                spans=spans,
                topic_ids={report.topic: report.topic_id for report in reports},
                query_id=query_id,
                batch_id=batch_id,
                run_id=self._run_id,
                notes=self._grave.note(dead) if self._grave is not None else {},
                gaps=self._gaps,
            )
        )
        self._seen = state.ledger.offsets()

    def _discard(self, reports: list[Report]) -> None:
        for report in reports:
            self._table.discard(report.files)
            if self._grave is not None:
                self._grave.discard(report.dead_files)

    def _latest(self) -> Offsets:
        """Where the logs end now; nothing if that can't be had at this moment: it is for show."""
        try:
            found = self._broker.latest(list(self.offsets()), self._isolation)
        except ClientError as error:
            log.info("where the topics end is not known at this moment: %s", error)
            return {}
        return _by_topic({(at.topic, at.partition): offset for at, offset in found.items()})


def _spans(reports: list[Report]) -> dict[Place, tuple[Span, ...]]:
    """What each partition got, in order; what touches is one."""
    found: dict[Place, list[Span]] = {}
    for report in sorted(reports, key=lambda one: (one.topic, one.partition, one.start)):
        spans = found.setdefault((report.topic, report.partition), [])
        span = Span(report.start, report.end, report.count, report.total, report.dead)
        if spans and spans[-1].end == span.start:
            spans[-1] = spans[-1].joined(span)
        else:
            spans.append(span)
    return {place: tuple(spans) for place, spans in found.items()}


def _by_topic(offsets: dict[Place, int]) -> Offsets:
    found: Offsets = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[partition] = offset
    return found
