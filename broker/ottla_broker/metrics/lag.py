"""The lag of groups, in records and in time, with the trend of the last minutes.

The broker that coordinates a group has its offsets. It knows the records too, where it leads a partition or follows it;
in a cluster whose partitions have a replica on each broker, that is always. Partitions without a replica here are
counted, and left to ``ottla groups lag``, which asks their leaders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla_broker.metrics.exposition import Exposition
from ottla_broker.metrics.lag_reader import Behind, LagReader
from ottla_broker.metrics.trend import Trend, catch_up_seconds
from ottla_protocol.group_lag import sample_of
from ottla_protocol.lag import beyond_end
from ottla_protocol.prometheus import escape, labels

if TYPE_CHECKING:
    from ottla_broker.metrics.sources import Sources


_A_STEP: Final = 10
_OTHER_KINDS: Final = frozenset({"share", "zookeeper"})


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


class _OfPartitions:
    """The metrics of each group's partitions."""

    def __init__(self, out: Exposition) -> None:
        self._out = out
        self._families = (
            out.gauge("kafka_consumergroup_current_offset", "The offset that the group has committed."),
            out.gauge(
                "kafka_consumergroup_lag", "Records that the group has left, up to the high watermark."
            ),
            out.gauge("ottla_group_lag_seconds", "The age of the next record that the group reads."),
            out.gauge(
                "ottla_group_beyond_end",
                "How far the committed offset lies beyond the end of the log; no value where it doesn't.",
            ),
        )

    def add(self, group: str, topic: str, index: int, offset: int, end: int, found: Behind) -> None:
        """``group``: its name, escaped."""
        if not self._out.room(3):
            return
        current, lag, age, beyond = self._families
        at = f'{{consumergroup="{group}",topic="{topic}",partition="{index}"}}'
        current.lines.append(f"{current.name}{at} {offset}\n")
        lag.lines.append(f"{lag.name}{at} {found.records}\n")
        at = f'{{group="{group}",topic="{topic}",partition="{index}"}}'
        if found.age_ms is not None:
            age.lines.append(f"{age.name}{at} {found.age_ms / 1000}\n")
        far = beyond_end(offset, end)
        if far and self._out.room(1):
            beyond.add(far, at)

    def flush(self) -> None:
        """Encode what was added."""
        for family in self._families:
            family.flush()


class _OfGroups:
    """The metrics of each group."""

    def __init__(self, out: Exposition) -> None:
        self._out = out
        self._total = out.gauge(
            "kafka_consumergroup_lag_sum",
            "Records that the group has not read, in all partitions known here.",
        )
        self._families = (
            out.gauge(
                "ottla_group_lag_slope", "Records a second by which the lag grows, over up to five minutes."
            ),
            out.gauge(
                "ottla_group_catch_up_seconds",
                "When the lag is gone, if it goes on shrinking; else no value.",
            ),
            out.gauge("ottla_group_commit_age_seconds", "Time since the group's last commit."),
        )

    def add(
        self, group: str, records: int, commit_age: float | None, slope: float | None, catch_up: float | None
    ) -> None:
        """Add the values that are known. ``group``: its name, escaped."""
        if not self._out.room(4):
            return
        self._total.add(records, f'{{consumergroup="{group}"}}')
        for family, value in zip(self._families, (slope, catch_up, commit_age), strict=True):
            if value is not None:
                family.add(value, f'{{group="{group}"}}')


class LagCollector:
    """See :data:`.sources.Collector`. Owned by the loop thread."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._trends: dict[str, Trend] = {}
        self._reader = LagReader(sources.replicas, sources.logs)
        self._round = 0

    def collect(self, out: Exposition) -> Iterator[None]:
        """Lag by partition; trend and last commit by group."""
        of_partitions, of_groups = _OfPartitions(out), _OfGroups(out)
        self._round += 1
        self._reader.begin()
        unknown = done = 0
        clock, reader = self._sources.clock, self._reader
        for group in self._sources.groups.groups:
            name = escape(group.group_id)
            now_ms, now = clock.now_ms(), clock.monotonic()
            behind = known = last_commit = 0
            for topic, partitions in list(group.offsets.topics()):
                for index, committed in list(partitions.items()):
                    done += 1
                    if done % _A_STEP == 0:
                        of_partitions.flush()
                        yield
                    last_commit = max(last_commit, committed.commit_ms)
                    partition, end = reader.find(topic, index)
                    if partition is None or end is None:
                        unknown += 1
                        continue
                    known += 1
                    offset = committed.offset
                    found = yield from reader.behind(group.group_id, partition, offset, end, now_ms)
                    behind += found.records
                    of_partitions.add(name, topic, index, offset, end, found)
            if not known:
                continue
            trend = self._trends.setdefault(group.group_id, Trend())
            trend.round = self._round
            growth = trend.slope(now, behind)
            trend.add(now, behind)
            left = catch_up_seconds(behind, growth)
            of_groups.add(name, behind, max(0, now_ms - last_commit) / 1000, growth, left)
        yield from self._others(out, of_groups)
        out.gauge(
            "ottla_group_lag_unknown_partitions",
            "Partitions with committed offsets of which this broker has no replica in use.",
        ).add(unknown)
        self._forget()
        yield

    def _others(self, out: Exposition, of_groups: _OfGroups) -> Iterator[None]:
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
            if sample.records is None or not out.room(1):
                continue
            if sample.lag_ms is not None:
                age.add(sample.lag_ms / 1000, labels(group=name))
            of_groups.add(
                escape(name),
                sample.records,
                _seconds(sample.commit_age_ms),
                sample.slope,
                _seconds(sample.catch_up_ms),
            )

    def _forget(self) -> None:
        gone = [name for name, trend in self._trends.items() if trend.round != self._round]
        for name in gone:
            del self._trends[name]
        if gone:
            self._reader.keep(self._trends)
