"""Runs an audit: asks the brokers, reads table and log, and compares them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla_client import TopicPartition
from ottla_client.admin import ConfigResource
from ottla_client.errors import BrokerError, UnsupportedApiError
from ottla_client.sync import Admin
from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.tables import Names
from ottla_pipeline.landing.tables.outside import one_line
from ottla_pipeline.reading import OffsetRange, ReadSettings
from ottla_pipeline.reading.ranges import Isolation
from ottla_pipeline.source import kafka
from ottla_pipeline.source.cluster_queries import ClusterQueries, LogEnd

from .compare import LogPartition, PartitionAudit, TablePartition, compare
from .dead import Dead, by_partition
from .log import Scan, Stop, scan
from .runs import NOTHING, OffsetCounts, Runs

log = logging.getLogger("ottla_pipeline")

if TYPE_CHECKING:
    from ottla_client import TopicPartition
    from ottla_pipeline.landing.ledger import LandedRange
    from ottla_pipeline.landing.tables import Names, Table
    from ottla_pipeline.landing.tables.base import Rows

OnProgress = Callable[[int, int], None]
"""Gets how many offsets and rows were read, and about how many there are."""

_COLUMNS = ("key", "value", "offset")


class AuditError(Exception):
    """Table and log can't be compared; one line says why, and what to do."""


@dataclass(frozen=True)
class Audit:
    """The result, by partition, in order."""

    table: str
    format: str
    partitions: Sequence[PartitionAudit]
    foreign: int = 0
    """Rows of other programs, which say of no record that they come from it: not an error."""
    removed_by: Sequence[str] = ()
    """The commits by which other programs have removed landed rows that aren't there now, newest first."""
    unknown: Sequence[str] = ()
    """If rows are missing: commits that may have removed them, as what they did isn't known any more."""

    @property
    def clean(self) -> bool:
        return all(partition.clean for partition in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """A JSON object. A range is a pair: its first offset, and the one after its last."""
        return {
            "table": self.table,
            "format": self.format,
            "clean": self.clean,
            "foreign_rows": self.foreign,
            "removed_by": list(self.removed_by),
            "removed_unknown": list(self.unknown),
            "partitions": [_document(partition) for partition in self.partitions],
        }


def _document(found: PartitionAudit) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "partition": found.partition,
        "clean": found.clean,
        "log_start": found.log_start,
        "log_end": found.log_end,
        "table_start": found.table_start,
        "table_end": found.table_end,
        "records": found.records,
        "present": found.present,
        "dead_letters": found.dead,
        "dead_letters_committed": found.dead_committed,
        "removed": found.removed.count,
        "removed_ranges": list(found.removed),
        "missing": found.missing.count,
        "missing_ranges": list(found.missing),
        "doubled": found.surplus,
        "doubled_ranges": list(found.doubled),
        "strange": found.strange.count,
        "strange_ranges": list(found.strange),
        "unreadable_ranges": list(found.unreadable),
        "skipped": found.skipped,
        "behind": found.behind,
        "gone": found.gone,
        "checksum": str(found.checksum),
        "differing_ranges": list(found.differing),
        "short_ranges": list(found.short),
    }


def audit(
    bootstrap_servers: str,
    table: Table,
    topics: Sequence[str] = (),
    *,
    client: Mapping[str, str] | None = None,
    names: Names | None = None,
    isolation: Isolation = "read_uncommitted",
    whole: bool = False,
    dead: Dead = Dead(),  # noqa: B008
    workers: int | None = None,
    advance: OnProgress = lambda done, total: None,
) -> Audit:
    """Compare a table with its topics, by default with all that were landed in it.

    ``client`` has Kafka's settings without ``kafka.``; ``names`` the columns that say where a row comes from.
    ``isolation`` has to be the job's, or aborted records would count as missing. With ``whole``, records that were
    never landed are missing, too: those from before the job began, and those not landed yet. ``dead`` has the dead
    letters (see `ottla_pipeline.audit.dead`). ``workers`` threads read partitions at once, by default one per core.
    Raises AuditError, ReadError, LandingError, ClientError.
    """
    with one_line(table.name):
        if not table.exists():
            raise AuditError(f"the {table.format} table {table.name} doesn't exist")
        table.refresh()
        ledger = table.state(topics).ledger
        wanted = tuple(dict.fromkeys(topics)) or tuple(sorted({topic for topic, _ in ledger.landed}))
        if not wanted:
            raise AuditError(
                f"{table.name} has no record of landed topics; name the topics to compare it with"
            )
        log = _look(bootstrap_servers, client or {}, wanted, isolation)
        _check_ids(table.name, ledger.ids, log.ids)
        # Ranges without offsets only say where the table ends.
        landed = {
            at: [one for one in ranges if one.start < one.end]
            for at, ranges in ledger.landed.items()
            if at.topic in wanted
        }
        files = table.data_files()
        progress = _Progress(advance, sum(file.rows for file in files) + log.offsets(landed, whole))
        rows_of = _Origins(table, names or Names(), wanted)
        counts = rows_of.count(partial(table.batches, files=files), progress.add)
        foreign = rows_of.foreign
        partitions = sorted({*log.start, *landed, *counts})
        rows = {
            at: _partition(landed.get(at, ()), counts.get(at), *dead.of(at), ledger.landed.get(at, ()))
            for at in partitions
        }
        ranges = {at: log.range(at, rows[at], whole) for at in partitions}
        settings = ReadSettings(
            bootstrap_servers,
            client or {},
            columns=_COLUMNS,
            isolation=isolation,
            segments="never",
            on_corrupt="deadletter",
        )
        scans = _scan_all(ranges, rows, settings, progress.add, workers or os.cpu_count() or 1)

        def compared() -> list[PartitionAudit]:
            return [compare(at, log.partition(at, scans[at]), rows[at], whole=whole) for at in partitions]

        found = compared()
        if not _lack(found):
            return Audit(table.name, table.format, found, foreign)
        removed, removed_by, unknown = rows_of.removed(counts)
        rows = {at: replace(one, removed=removed.get(at, NOTHING)) for at, one in rows.items()}
        found = compared()
        return Audit(table.name, table.format, found, foreign, removed_by, unknown if _lack(found) else ())


def _lack(found: Sequence[PartitionAudit]) -> bool:
    return any(each.missing or each.short for each in found)


@dataclass(frozen=True)
class _Log:
    """Facts about the topics, from the brokers."""

    ids: Mapping[str, str]
    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, LogEnd]
    compacted: Collection[str]

    def offsets(self, landed: Mapping[TopicPartition, Sequence[LandedRange]], whole: bool) -> int:
        """About how many offsets to read."""
        if whole:
            return sum(end.offset - self.start[at] for at, end in self.end.items())
        return sum(commit.end - commit.start for commits in landed.values() for commit in commits)

    def partition(self, at: TopicPartition, found: Scan) -> LogPartition:
        """A partition with what was read of it."""
        end = self.end[at].offset if at in self.end else 0
        return LogPartition(
            self.start.get(at, 0), end, found.offsets, found.sums, found.corrupt, at.topic in self.compacted
        )

    def range(self, at: TopicPartition, rows: TablePartition, whole: bool) -> OffsetRange:
        topic, partition = at
        end = self.end.get(at, LogEnd(0))
        first, last = self.start.get(at, 0), end.offset
        if not whole:
            table_start, table_end = rows.extent
            if table_start is None or table_end is None:
                last = first
            else:
                first = min(max(first, table_start), last)
                last = max(min(last, table_end), first)
        return OffsetRange(topic, self.ids.get(topic, ""), partition, first, last, end.leader_epoch)


def _look(servers: str, client: Mapping[str, str], topics: Sequence[str], isolation: Isolation) -> _Log:
    with ClusterQueries(servers, client) as cluster:
        partitions = cluster.partitions(topics)
        ids = cluster.topic_ids(topics)
        start = cluster.earliest(partitions)
        end = cluster.ends(partitions, isolation)
    return _Log(ids, start, end, _compacted(servers, client, topics))


def _compacted(servers: str, client: Mapping[str, str], topics: Sequence[str]) -> Collection[str]:
    """The compacted topics; empty if the brokers don't say, which is logged."""
    resources = [ConfigResource.topic(topic) for topic in topics]
    with Admin(servers, client_id="ottla-audit", **kafka.client_options(client)) as admin:
        try:
            configs = admin.describe_configs(
                resources, keys=["cleanup.policy"], timeout=kafka.call_timeout(client)
            )
        except (BrokerError, UnsupportedApiError) as error:
            log.warning("no topic is taken to be compacted, as the brokers don't say: %s", error)
            return ()
    return {
        resource.name
        for resource, entries in configs.items()
        if "compact" in (entries["cleanup.policy"].value or "" if "cleanup.policy" in entries else "")
    }


def _check_ids(table: str, known: Mapping[str, str], found: Mapping[str, str]) -> None:
    for topic, topic_id in found.items():
        if known.get(topic) and known[topic] != topic_id:
            raise AuditError(
                f"topic {topic} was deleted and made again since {table} was filled from it: their offsets mean other "
                "records, and nothing can be compared"
            )


def _partition(
    landed: Sequence[LandedRange],
    counts: OffsetCounts | None,
    dead: Runs,
    dead_batches: Runs,
    ranges: Sequence[LandedRange],
) -> TablePartition:
    rows = counts or OffsetCounts()
    return TablePartition(
        landed,
        bounds=(ranges[0].start, ranges[-1].end) if ranges else None,
        offsets=rows.offsets(),
        doubled=rows.repeated(),
        surplus=rows.surplus(),
        dead=dead,
        dead_batches=dead_batches,
        dead_committed=sum(one.dead for one in ranges),
    )


def _scan_all(
    ranges: Mapping[TopicPartition, OffsetRange],
    rows: Mapping[TopicPartition, TablePartition],
    settings: ReadSettings,
    advance: Callable[[int], None],
    workers: int,
) -> dict[TopicPartition, Scan]:
    """Scan all partitions, several at once, the largest first. An error or Ctrl-C ends all of them."""
    stop = Stop()
    order = sorted(ranges, key=lambda at: ranges[at].start - ranges[at].end)
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="audit") as pool:
        reading = {
            at: pool.submit(scan, ranges[at], settings, rows[at].landed, advance, stop) for at in order
        }
        try:
            wait(reading.values(), return_when=FIRST_EXCEPTION)
            for each in reading.values():
                if each.done():
                    each.result()
        except BaseException:
            stop.wanted = True
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return {at: each.result() for at, each in reading.items()}


class _Progress:
    """Adds up what several threads have done."""

    def __init__(self, advance: OnProgress, total: int) -> None:
        self._advance = advance
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def add(self, done: int) -> None:
        with self._lock:
            self._done += done
            self._advance(self._done, self._total)


class _Origins:
    """Reads where a table's rows come from. Raises AuditError if it has no columns that say so."""

    def __init__(self, table: Table, names: Names, topics: Collection[str]) -> None:
        names = names.of_table(table)
        self._table = table
        self._columns = [names.topic, names.partition, names.offset]
        self._topics = frozenset(topics)
        self.foreign = 0
        """Rows of no record that were counted."""
        for name in self._columns:
            if name not in table.schema().names:
                raise AuditError(
                    f"{table.name} has no column {name}, which says where a row comes from; did the job that landed it "
                    "use other names?"
                )

    def count(
        self, rows: Rows, advance: Callable[[int], None] = lambda rows: None
    ) -> dict[TopicPartition, OffsetCounts]:
        """How often each offset of each partition is in these rows."""
        found: dict[TopicPartition, OffsetCounts] = {}
        for batch in rows(self._columns):
            known = batch.drop_null()
            self.foreign += len(batch) - len(known)
            for at, offsets in by_partition(known):
                if at.topic in self._topics:
                    found.setdefault(at, OffsetCounts()).add(offsets)
            advance(len(batch))
        return found

    def removed(
        self, there: Mapping[TopicPartition, OffsetCounts]
    ) -> tuple[dict[TopicPartition, Runs], list[str], list[str]]:
        """Offsets, of others than ``there`` are, whose rows other programs have removed; and by which commits.

        Last, the commits of which that isn't known: only as far as the table has those commits, and storage the files
        from before them.
        """
        found: dict[TopicPartition, Runs] = {}
        commits: dict[str, None] = {}
        unknown: list[str] = []
        for each in self._table.removals():
            if each.rows is None:
                unknown += each.commits
                continue
            try:
                before, after = (_offsets(self.count(rows)) for rows in each.rows)
            except (OSError, LandingError) as error:
                names = ", ".join(each.commits)
                log.info("what %s of %s has removed is not known: %s", names, self._table.name, error)
                unknown += [f"{one}, whose files can't be read" for one in each.commits]
                continue
            for at, offsets in before.items():
                now = there[at].offsets() if at in there else NOTHING
                if gone := offsets - after.get(at, NOTHING) - now:
                    commits.update(dict.fromkeys(each.commits))
                    found[at] = found.get(at, NOTHING) | gone
        return found, list(commits), unknown


def _offsets(counts: Mapping[TopicPartition, OffsetCounts]) -> dict[TopicPartition, Runs]:
    return {at: one.offsets() for at, one in counts.items()}
