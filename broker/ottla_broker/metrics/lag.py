"""How far groups are behind, in records and in time, with the trend of the last minutes.

The broker that coordinates a group has its offsets. It knows the records too, where it leads a partition or follows it;
in a cluster whose partitions have a replica on each broker, that is always. Partitions without a replica here are
counted, and left to ``ottla groups lag``, which asks their leaders.

Lag in time is the age of the next record that the group reads: now, less the timestamp in the header of the batch that
holds the committed offset. It is looked up when the offset or the lag begins, and kept while the offset stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.events import get_logger
from ottla_broker.metrics.exposition import Exposition, escape
from ottla_protocol.errors import KafkaError

if TYPE_CHECKING:
    from ottla_broker.metrics.sources import Sources
    from ottla_broker.replica.partition import Partition

_log = get_logger()

_A_STEP: Final = 25
HISTORY_SECONDS: Final = 300.0
"""How far back the trend looks."""
_LEAST_BETWEEN: Final = 5.0
_LEAST_TREND: Final = 10.0


class Sample(NamedTuple):
    """A group's lag in records at a time on the monotonic clock."""

    at: float
    records: int


class Trend:
    """A group's lag over the last five minutes: at most one sample in five seconds."""

    __slots__ = ("_samples", "round")

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=int(HISTORY_SECONDS / _LEAST_BETWEEN) + 1)
        # The scrape that has last seen the group.
        self.round = 0

    def add(self, at: float, records: int) -> None:
        """Add what a scrape has seen."""
        samples = self._samples
        if not samples or at - samples[-1].at >= _LEAST_BETWEEN:
            samples.append(Sample(at, records))
        while samples and at - samples[0].at > HISTORY_SECONDS:
            samples.popleft()

    def slope(self, at: float, records: int) -> float | None:
        """Records a second by which the lag grows, over up to five minutes; None while that isn't known."""
        if not self._samples or at - self._samples[0].at < _LEAST_TREND:
            return None
        first = self._samples[0]
        return (records - first.records) / (at - first.at)


def catch_up_seconds(records: int, slope: float | None) -> float | None:
    """When the lag is gone if it goes on shrinking like this; None: it doesn't shrink."""
    if not records:
        return 0.0
    return None if slope is None or slope >= 0 else records / -slope


class LagCollector:
    """See :data:`.sources.Collector`. Owned by the loop thread."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._trends: dict[str, Trend] = {}
        # The committed offset of each group's partition, and the timestamp of the record there.
        self._times: dict[tuple[str, str, int], tuple[int, int | None]] = {}
        self._round = 0

    def collect(self, out: Exposition) -> Iterator[None]:
        """Lag by partition; trend and last commit by group."""
        kafka = "kafka_consumergroup_"
        families = (
            current := out.gauge(f"{kafka}current_offset", "The offset that the group has committed."),
            lag := out.gauge(f"{kafka}lag", "Records that the group has not read, up to the high watermark."),
            age := out.gauge("ottla_group_lag_seconds", "The age of the next record that the group reads."),
        )
        total = out.gauge(
            f"{kafka}lag_sum", "Records that the group has not read, in all partitions known here."
        )
        slope = out.gauge(
            "ottla_group_lag_slope", "Records a second by which the lag grows, over up to five minutes."
        )
        left = out.gauge(
            "ottla_group_catch_up_seconds", "When the lag is gone, if it goes on shrinking; else no value."
        )
        since = out.gauge("ottla_group_commit_age_seconds", "Time since the group's last commit.")
        self._round += 1
        unknown = done = 0
        clock = self._sources.clock
        for group in self._sources.groups.groups:
            name = escape(group.group_id)
            now_ms, now = clock.now_ms(), clock.monotonic()
            behind = known = last_commit = 0
            for topic, partitions in list(group.offsets.topics()):
                for index, committed in list(partitions.items()):
                    done += 1
                    if done % _A_STEP == 0:
                        for family in families:
                            family.flush()
                        yield
                    last_commit = max(last_commit, committed.commit_ms)
                    partition = self._sources.replicas.partition(topic, index)
                    end = self._end(partition, topic, index)
                    if end is None:
                        unknown += 1
                        continue
                    known += 1
                    records = max(0, end - committed.offset)
                    behind += records
                    seconds = self._seconds(
                        group.group_id, partition, index, committed.offset, records, now_ms
                    )
                    if not out.room(3):
                        continue
                    at = f'{{consumergroup="{name}",topic="{topic}",partition="{index}"}}'
                    current.lines.append(f"{current.name}{at} {committed.offset}\n")
                    lag.lines.append(f"{lag.name}{at} {records}\n")
                    if seconds is not None:
                        where = f'{{group="{name}",topic="{topic}",partition="{index}"}}'
                        age.lines.append(f"{age.name}{where} {seconds}\n")
            if not known:
                continue
            trend = self._trends.get(group.group_id)
            if trend is None:
                trend = self._trends[group.group_id] = Trend()
            trend.round = self._round
            growth = trend.slope(now, behind)
            trend.add(now, behind)
            if out.room(4):
                total.add(behind, f'{{consumergroup="{name}"}}')
                at = f'{{group="{name}"}}'
                since.add(max(0, now_ms - last_commit) / 1000, at)
                if growth is not None:
                    slope.add(growth, at)
                seconds_left = catch_up_seconds(behind, growth)
                if seconds_left is not None:
                    left.add(seconds_left, at)
        out.gauge(
            "ottla_group_lag_unknown_partitions",
            "Partitions with committed offsets of which this broker has no replica in use.",
        ).add(unknown)
        self._forget()
        yield

    def _end(self, partition: Partition | None, topic: str, index: int) -> int | None:
        """The high watermark; that of a log that isn't in use comes from the checkpoint."""
        if partition is None:
            return None
        if partition.is_open:
            return partition.high_watermark
        return self._sources.logs.high_watermark(topic, index)

    def _seconds(
        self, group_id: str, partition: Partition | None, index: int, offset: int, records: int, now_ms: int
    ) -> float | None:
        """The age of the record at the committed offset; None where the log isn't in use or can't be read."""
        assert partition is not None
        key = (group_id, partition.topic, index)
        if not records:
            self._times.pop(key, None)
            return 0.0
        known = self._times.get(key)
        if known is None or known[0] != offset:
            if not partition.is_open:
                return None
            known = self._times[key] = offset, self._timestamp(partition, offset)
        timestamp = known[1]
        return None if timestamp is None else max(0, now_ms - timestamp) / 1000

    def _timestamp(self, partition: Partition, offset: int) -> int | None:
        try:
            return partition.log.reader.timestamp_at(max(offset, partition.log.log_start_offset))
        except KafkaError as error:
            _log.debug("no lag in time", topic=partition.topic, partition=partition.partition, why=str(error))
            return None

    def _forget(self) -> None:
        """Forget groups that are gone."""
        gone = [name for name, trend in self._trends.items() if trend.round != self._round]
        for name in gone:
            del self._trends[name]
        if gone:
            self._times = {key: value for key, value in self._times.items() if key[0] in self._trends}
