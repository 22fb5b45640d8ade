"""An audit from its questions to the broker and the table to its result."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla_client.admin import ConfigResource
from ottla_client.errors import BrokerError, UnsupportedApiError
from ottla_client.sync import Admin
from ottla_pipeline.landing.tables import Names
from ottla_pipeline.reading import Range, ReadSettings
from ottla_pipeline.reading.checksum import Checksum
from ottla_pipeline.source import kafka
from ottla_pipeline.source.broker import Broker, End, ids_of
from ottla_pipeline.source.options import Isolation, Topics

from .compare import Landed, LogPartition, PartitionAudit, TablePartition, compare
from .dead import Dead
from .log import Scan, Stop, scan
from .runs import Runs, Tally
from .table import tally_rows

if TYPE_CHECKING:
    from ottla_pipeline.landing.ledger import Place, Span
    from ottla_pipeline.landing.tables import Table

Tell = Callable[[int, int], None]
"""Gets how many offsets and rows were gone through, of about how many."""

_COLUMNS = ("key", "value", "offset")


class AuditError(Exception):
    """The two can't be compared; one line that says why, and what to do."""


@dataclass(frozen=True)
class Audit:
    """The result, a partition each, in order."""

    table: str
    format: str
    partitions: Sequence[PartitionAudit]

    @property
    def clean(self) -> bool:
        """Every record is there once, and none differs."""
        return all(partition.clean for partition in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """A JSON object. Ranges are pairs of the first offset and the one behind the last."""
        return {
            "table": self.table,
            "format": self.format,
            "clean": self.clean,
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
        "dead_letters_committed": found.buried,
        "missing": found.missing.count,
        "missing_ranges": list(found.missing),
        "doubled": found.surplus,
        "doubled_ranges": list(found.doubled),
        "strange": found.strange.count,
        "strange_ranges": list(found.strange),
        "unreadable_ranges": list(found.unreadable),
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
    tell: Tell = lambda done, total: None,
) -> Audit:
    """Compare a table with its topics, by default with all those that were landed in it.

    ``client`` are Kafka's settings without ``kafka.``; ``names`` the columns that say where a row comes from.
    ``isolation`` has to be the one that it was landed with, or what was aborted would be missed. With ``whole`` records
    that were never landed are missing too, be it because the job began later or because it hasn't come to them yet.
    ``dead`` are the dead letters (see `ottla_pipeline.audit.dead`). Several partitions are read at once, by ``workers``
    threads; by default as many as there are cores.

    Raises AuditError, and what reading raises: ReadError, LandingError, ClientError.
    """
    if not table.exists():
        raise AuditError(f"there is no {table.format} table at {table.name}")
    table.refresh()
    ledger = table.state(topics).ledger
    wanted = tuple(dict.fromkeys(topics)) or tuple(sorted({topic for topic, _ in ledger.spans}))
    if not wanted:
        raise AuditError(
            f"{table.name} says of no topic that it was landed there; name the topics to compare it with"
        )
    log = _look(bootstrap_servers, client or {}, wanted, isolation)
    _check_ids(table.name, ledger.ids, log.ids)
    landed = {place: _landed(spans) for place, spans in ledger.spans.items() if place[0] in wanted}
    progress = _Progress(tell, sum(file.rows for file in table.data_files()) + log.offsets(landed, whole))
    try:
        tallies = tally_rows(table, names or Names(), frozenset(wanted), progress.add)
    except KeyError as error:
        raise AuditError(
            f"{table.name} has no column {error.args[0]}, which says where a row comes from; were other names given to "
            "the job that landed it?"
        ) from None
    places = sorted({*log.start, *landed, *tallies})
    rows = {
        place: _partition(
            landed.get(place, ()), tallies.get(place), *dead.of(place), ledger.spans.get(place, ())
        )
        for place in places
    }
    ranges = {place: log.range(place, rows[place], whole) for place in places}
    settings = ReadSettings(
        bootstrap_servers,
        client or {},
        columns=_COLUMNS,
        isolation=isolation,
        segments="never",
        on_corrupt="deadletter",
    )
    scans = _scan_all(ranges, rows, settings, progress.add, workers or os.cpu_count() or 1)
    return Audit(
        table.name,
        table.format,
        [
            compare(
                *place,
                LogPartition(
                    log.start.get(place, 0),
                    log.end[place].offset if place in log.end else 0,
                    scans[place].offsets,
                    scans[place].sums,
                    scans[place].corrupt,
                    place[0] in log.compacted,
                ),
                rows[place],
                whole=whole,
            )
            for place in places
        ],
    )


@dataclass(frozen=True)
class _Log:
    """What brokers say of the topics."""

    ids: Mapping[str, str]
    start: Mapping[Place, int]
    end: Mapping[Place, End]
    compacted: Collection[str]

    def offsets(self, landed: Mapping[Place, Sequence[Landed]], whole: bool) -> int:
        """About how many offsets there are to go through."""
        if whole:
            return sum(end.offset - self.start[place] for place, end in self.end.items())
        return sum(commit.end - commit.start for commits in landed.values() for commit in commits)

    def range(self, place: Place, rows: TablePartition, whole: bool) -> Range:
        """What has to be read of a partition."""
        topic, partition = place
        end = self.end.get(place, End(0))
        first, last = self.start.get(place, 0), end.offset
        if not whole:
            table_start, table_end = rows.extent
            if table_start is None or table_end is None:
                last = first
            else:
                first = min(max(first, table_start), last)
                last = max(min(last, table_end), first)
        return Range(topic, self.ids.get(topic, ""), partition, first, last, end.leader_epoch)


def _look(servers: str, client: Mapping[str, str], topics: Sequence[str], isolation: Isolation) -> _Log:
    with Broker(servers, client) as broker:
        partitions = broker.partitions(topics)
        ids = ids_of(broker.topics(Topics(tuple(topics))))
        start = broker.earliest(partitions)
        end = broker.ends(partitions, isolation)
    return _Log(
        ids,
        {(each.topic, each.partition): offset for each, offset in start.items()},
        {(each.topic, each.partition): found for each, found in end.items()},
        _compacted(servers, client, topics),
    )


def _compacted(servers: str, client: Mapping[str, str], topics: Sequence[str]) -> Collection[str]:
    """The topics that are cleaned by compaction; none where that isn't told."""
    resources = [ConfigResource.topic(topic) for topic in topics]
    with Admin(servers, client_id="ottla-audit", **kafka.client_options(client)) as admin:
        try:
            configs = admin.describe_configs(
                resources, keys=["cleanup.policy"], timeout=kafka.call_timeout(client)
            )
        except (BrokerError, UnsupportedApiError):
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


def _landed(spans: Sequence[Span]) -> Sequence[Landed]:
    """Without those of which the table only knows where they end."""
    return [
        Landed(span.start, span.end, Checksum(span.count, span.total))
        for span in spans
        if span.start < span.end
    ]


def _partition(
    landed: Sequence[Landed], tally: Tally | None, dead: Runs, dead_batches: Runs, spans: Sequence[Span]
) -> TablePartition:
    rows = tally or Tally()
    return TablePartition(
        landed,
        offsets=rows.offsets(),
        doubled=rows.repeated(),
        surplus=rows.surplus(),
        dead=dead,
        dead_batches=dead_batches,
        buried=sum(span.dead for span in spans),
    )


def _scan_all(
    ranges: Mapping[Place, Range],
    rows: Mapping[Place, TablePartition],
    settings: ReadSettings,
    tell: Callable[[int], None],
    workers: int,
) -> dict[Place, Scan]:
    """All partitions, some at a time, the largest first. What goes wrong in one, or Ctrl-C, ends the others."""
    stop = Stop()
    order = sorted(ranges, key=lambda place: ranges[place].start - ranges[place].end)
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="audit") as pool:
        reading = {
            place: pool.submit(scan, ranges[place], settings, rows[place].landed, tell, stop)
            for place in order
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
        return {place: each.result() for place, each in reading.items()}


class _Progress:
    """Adds up what several threads have done."""

    def __init__(self, tell: Tell, total: int) -> None:
        self._tell = tell
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def add(self, done: int) -> None:
        with self._lock:
            self._done += done
            self._tell(self._done, self._total)
