"""The lag of groups, in records and in time, with the trend of the last minutes.

The broker that coordinates a group has its offsets. It knows the records too, where it leads a partition or follows it;
in a cluster whose partitions have a replica on each broker, that is always. Partitions without a replica here are
counted, and left to ``ottla groups lag``, which asks their leaders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla_broker.metrics.exposition import Exposition, Family
from ottla_broker.metrics.lag_reader import LagReader
from ottla_broker.metrics.trend import Trend, catch_up_seconds
from ottla_protocol.group_lag import sample_of
from ottla_protocol.lag import beyond_end
from ottla_protocol.prometheus import escape, labels

if TYPE_CHECKING:
    from ottla_broker.metrics.sources import Sources


_A_STEP: Final = 10
_A_STEP_BYTES: Final = 256 << 10
"""A step ends after so many offsets, or so many bytes of logs that were looked through."""
_OTHER_KINDS: Final = frozenset({"share", "zookeeper"})


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _add(at: str, *values: tuple[Family, float | None]) -> None:
    """Add the values that are known, with the same labels."""
    for family, value in values:
        if value is not None:
            family.add(value, at)


class LagCollector:
    """See :data:`.sources.Collector`. Owned by the loop thread."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._trends: dict[str, Trend] = {}
        self._reader = LagReader(sources.replicas, sources.logs)
        self._round = 0

    def collect(self, out: Exposition) -> Iterator[None]:
        """Lag by partition; trend and last commit by group."""
        kafka = "kafka_consumergroup_"
        families = (
            current := out.gauge(f"{kafka}current_offset", "The offset that the group has committed."),
            lag := out.gauge(f"{kafka}lag", "Records that the group has left, up to the high watermark."),
            age := out.gauge("ottla_group_lag_seconds", "The age of the next record that the group reads."),
            beyond := out.gauge(
                "ottla_group_beyond_end",
                "How far the committed offset lies beyond the end of the log; no value where it doesn't.",
            ),
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
        clock, reader = self._sources.clock, self._reader
        looked = reader.looked
        for group in self._sources.groups.groups:
            name = escape(group.group_id)
            now_ms, now = clock.now_ms(), clock.monotonic()
            behind = known = last_commit = 0
            for topic, partitions in list(group.offsets.topics()):
                for index, committed in list(partitions.items()):
                    done += 1
                    if done % _A_STEP == 0 or reader.looked - looked > _A_STEP_BYTES:
                        looked = reader.looked
                        for family in families:
                            family.flush()
                        yield
                    last_commit = max(last_commit, committed.commit_ms)
                    partition, end = reader.find(topic, index)
                    if partition is None or end is None:
                        unknown += 1
                        continue
                    known += 1
                    records, age_ms = reader.behind(group.group_id, partition, committed.offset, end, now_ms)
                    behind += records
                    if not out.room(3):
                        continue
                    at = f'{{consumergroup="{name}",topic="{topic}",partition="{index}"}}'
                    current.lines.append(f"{current.name}{at} {committed.offset}\n")
                    lag.lines.append(f"{lag.name}{at} {records}\n")
                    if age_ms is not None:
                        where = f'{{group="{name}",topic="{topic}",partition="{index}"}}'
                        age.lines.append(f"{age.name}{where} {age_ms / 1000}\n")
                    far = beyond_end(committed.offset, end)
                    if far and out.room(1):
                        beyond.add(far, f'{{group="{name}",topic="{topic}",partition="{index}"}}')
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
                _add(
                    f'{{group="{name}"}}',
                    (since, max(0, now_ms - last_commit) / 1000),
                    (slope, growth),
                    (left, catch_up_seconds(behind, growth)),
                )
        yield from self._others(out, total, slope, left, since)
        out.gauge(
            "ottla_group_lag_unknown_partitions",
            "Partitions with committed offsets of which this broker has no replica in use.",
        ).add(unknown)
        self._forget()
        yield

    def _others(
        self, out: Exposition, total: Family, slope: Family, left: Family, since: Family
    ) -> Iterator[None]:
        """Share groups and groups in ZooKeeper, as the last sample of the history has them."""
        history = self._sources.lag_history()
        if history is None:
            return
        age = out.gauge(
            "ottla_group_lag_seconds_max",
            "The age of the oldest record that the group reads next; of share groups and groups in ZooKeeper.",
        )
        out.counter(
            "ottla_lag_history_failures_total",
            "Samples of lag, or parts of them, that couldn't be taken or kept.",
        ).add(history.failures)
        out.gauge(
            "ottla_lag_history_groups_left_out",
            "Groups without a history because of ottla.lag.history.max.groups.",
        ).add(history.left_out)
        shown: set[str] = set()
        for done, state in enumerate(list(history.latest.values()), 1):
            if done % _A_STEP == 0:
                yield
            name, sample = state.group_id, sample_of(history.sampled_ms, state)
            # A group that commits to the broker too is shown by those commits.
            if sample.kind not in _OTHER_KINDS or name in self._trends or name in shown:
                continue
            shown.add(name)
            if sample.records is None or not out.room(5):
                continue
            total.add(sample.records, labels(consumergroup=name))
            _add(
                labels(group=name),
                (age, _seconds(sample.lag_ms)),
                (slope, sample.slope),
                (left, _seconds(sample.catch_up_ms)),
                (since, _seconds(sample.commit_age_ms)),
            )

    def _forget(self) -> None:
        gone = [name for name, trend in self._trends.items() if trend.round != self._round]
        for name in gone:
            del self._trends[name]
        if gone:
            self._reader.keep(self._trends)
