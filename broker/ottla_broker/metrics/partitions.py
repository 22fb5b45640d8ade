"""Collectors for partitions and their logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla_broker.log import names
from ottla_broker.metrics.exposition import Exposition
from ottla_broker.replica.partition import Role
from ottla_broker.tasks import unhurried

if TYPE_CHECKING:
    from ottla_broker.log.files import Files
    from ottla_broker.metrics.sources import Sources
    from ottla_broker.replica.partition import Partition

_A_STEP: Final = 25
PURGATORY: Final = "kafka_server_delayedoperationpurgatory_purgatorysize"
WAITING: Final = "What waits, by operation, for each partition, group or member."


def closed_sizes(files: Files, logs: Sequence[tuple[tuple[str, int], str]]) -> dict[tuple[str, int], int]:
    """The bytes of the segments in these logs' folders. May run on any thread: it reads names and sizes alone."""
    found = {}
    for key, path in logs:
        try:
            found[key] = sum(
                files.size(f"{path}/{name}") for name in files.names(path) if name.endswith(names.LOG)
            )
        except OSError:
            # Opened, moved or deleted meanwhile.
            continue
    return found


_OF_LEADER: Final = (
    ("underreplicated", "1: not all replicas are in sync."),
    ("insyncreplicascount", "Replicas in sync, where this broker leads."),
    ("replicascount", "Replicas, where this broker leads."),
    ("underminisr", "1: fewer replicas in sync than min.insync.replicas."),
    ("laststableoffsetlag", "Offsets from the last stable one to the high watermark: an open transaction."),
)
_OF_LOG: Final = (
    ("size", "Bytes of the log's segments."),
    ("logstartoffset", "The first offset; of logs that have been used."),
    ("logendoffset", "The next offset; of logs that have been used."),
    ("numlogsegments", "Segments; of logs that have been used."),
)


@dataclass(slots=True)
class _Sums:
    """The sums over all partitions that are shown.

    Attributes:
        writes, fetches: those that wait.
        lags: how far each follower is behind at most, in records of a partition led here.
    """

    total: int = 0
    led: int = 0
    under: int = 0
    under_min: int = 0
    at_min: int = 0
    offline: int = 0
    opened: int = 0
    writes: int = 0
    fetches: int = 0
    lags: Counter[int] = field(default_factory=Counter)

    def add_lags(self, partition: Partition) -> None:
        """Count in how far the followers of a partition are behind, where that is known."""
        log_end = partition.log.log_end_offset
        for broker, follower in partition.followers.items():
            if follower.end_offset >= 0:
                self.lags[broker] = max(self.lags[broker], log_end - follower.end_offset)

    def show(self, out: Exposition, behind_leaders: int) -> None:
        """``behind_leaders``: how far a replica here is behind at most."""
        prefix = "kafka_server_replicamanager_"
        for name, value, meaning in (
            ("partitioncount", self.total, "Partitions of which this broker has a replica."),
            ("leadercount", self.led, "Partitions that this broker leads."),
            ("underreplicatedpartitions", self.under, "Led partitions without all replicas in sync."),
            ("underminisrpartitioncount", self.under_min, "Led partitions that acks=all can't write to."),
            ("atminisrpartitioncount", self.at_min, "Led partitions with just min.insync.replicas in sync."),
            ("offlinereplicacount", self.offline, "Replicas here whose disk has failed."),
        ):
            out.gauge(prefix + name, meaning).add(value)
        lag = out.gauge(
            "ottla_follower_lag_records_max",
            "How far a broker is behind at most, in records of a partition led here.",
        )
        for broker, behind in sorted(self.lags.items()):
            lag.add(behind, f'{{follower="{broker}"}}')
        purgatory = out.gauge(PURGATORY, WAITING)
        purgatory.add(self.fetches, '{delayedOperation="Fetch"}')
        purgatory.add(self.writes, '{delayedOperation="Produce"}')
        out.gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "By how many records a replica here is behind its leader at most.",
        ).add(behind_leaders, '{clientId="Replica"}')
        out.gauge("ottla_logs_open", "Logs that have been used since the start.").add(self.opened)


class PartitionCollector:
    """See :data:`.sources.Collector`. Owned by the loop thread."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        # The sizes of closed logs, which don't change.
        self._closed_sizes: dict[tuple[str, int], int] = {}

    async def prepare(self) -> None:
        """Find out the sizes of closed logs, on a thread: opening thousands of logs for a scrape would be wrong."""
        logs = self._sources.logs
        known = self._closed_sizes
        wanted = []
        async for each in unhurried(list(self._sources.replicas.partitions()), 1_000):
            key = (each.topic, each.partition)
            if each.is_open:
                known.pop(key, None)
            elif key not in known and (log := logs.get(*key)) is not None:
                wanted.append((key, log.path))
        if len(known) > len(self._sources.replicas.partitions()):
            present = {(each.topic, each.partition) for each in self._sources.replicas.partitions()}
            self._closed_sizes = known = {key: size for key, size in known.items() if key in present}
        if wanted:
            known.update(await self._sources.background.run(closed_sizes, logs.files, wanted))

    def collect(self, out: Exposition) -> Iterator[None]:
        """Replicas in sync, and the logs."""
        sources = self._sources
        detail = tuple(out.gauge(f"kafka_cluster_partition_{name}", what) for name, what in _OF_LEADER)
        of_log = tuple(out.gauge(f"kafka_log_log_{name}", what) for name, what in _OF_LOG)
        # Looked up once, not a hundred thousand times.
        add_under, add_in_sync, add_replicas, add_under_min, add_stable_lag = (f.lines.append for f in detail)
        under_name, in_sync_name, replicas_name, under_min_name, stable_lag_name = (f.name for f in detail)
        add_size, add_start, add_end, add_segments = (f.lines.append for f in of_log)
        size_name, start_name, end_name, segments_name = (f.name for f in of_log)
        sums = _Sums()
        for partition in list(sources.replicas.partitions()):
            sums.total += 1
            if sums.total % _A_STEP == 0:
                yield
                for family in (*detail, *of_log):
                    family.flush()
            writes, fetches = partition.waiting
            sums.writes += writes
            sums.fetches += fetches
            role = partition.role
            is_open = partition.is_open
            sums.opened += is_open
            at = f'{{topic="{partition.topic}",partition="{partition.partition}"}}'
            if role is Role.LEADER:
                sums.led += 1
                count, most = len(partition.isr), len(partition.replicas)
                minimum = self._min_isr(partition)
                is_under, is_below = count < most, count < minimum
                sums.under += is_under
                sums.under_min += is_below
                sums.at_min += count == minimum
                if is_open and partition.followers:
                    sums.add_lags(partition)
                if out.room(5 if is_open else 4):
                    add_under(f"{under_name}{at} {is_under:d}\n")
                    add_in_sync(f"{in_sync_name}{at} {count}\n")
                    add_replicas(f"{replicas_name}{at} {most}\n")
                    add_under_min(f"{under_min_name}{at} {is_below:d}\n")
                    if is_open:
                        open_offsets = partition.high_watermark - partition.last_stable_offset
                        add_stable_lag(f"{stable_lag_name}{at} {open_offsets}\n")
            elif role is Role.OFFLINE:
                sums.offline += 1
                continue
            if is_open:
                log = partition.log
                if out.room(4):
                    add_size(f"{size_name}{at} {log.size}\n")
                    add_start(f"{start_name}{at} {log.log_start_offset}\n")
                    add_end(f"{end_name}{at} {log.log_end_offset}\n")
                    add_segments(f"{segments_name}{at} {len(log.segments)}\n")
            else:
                known = self._closed_sizes.get((partition.topic, partition.partition))
                if known is not None and out.room(1):
                    add_size(f"{size_name}{at} {known}\n")
        fetchers = sources.replicas.fetchers
        sums.show(out, 0 if fetchers is None else fetchers.behind)
        yield

    def _min_isr(self, partition: Partition) -> int:
        """``min.insync.replicas`` of a partition, without opening its log."""
        log = self._sources.logs.get(partition.topic, partition.partition)
        configured = 1 if log is None else log.config.min_insync_replicas
        return min(configured, max(1, len(partition.replicas)))
