"""The offsets that a table holds of each partition, kept in the metadata of the table's own commits.

Each commit carries the whole ledger, so the last one is enough to go on from. To keep it small, neighbouring ranges are
joined, the smallest first, once a partition has more than :func:`limit` of them: checksums are sums, so they add up.

As JSON: ``{topic: {"id": topic id, "partitions": {"0": [[start, end, records, checksum, dead letters], …]}}}``, the
checksum as 16 hexadecimal digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla_client import TopicPartition
from ottla_pipeline.landing.errors import Collision, DataGone, LandingError
from ottla_pipeline.reading.checksum import Checksum

_MOST = 2048
"""Ranges in a whole ledger, about: they go into every commit, at some 40 bytes each."""

OffsetsByTopic = dict[str, dict[int, int]]
"""By topic and partition, the next offset to land."""


@dataclass(frozen=True)
class LandedRange:
    """Offsets ``[start, end)`` of a partition, all landed."""

    start: int
    end: int
    count: int = 0
    """Records in it: fewer than ``end - start`` where there are control batches, or compaction removed some."""
    total: int = 0
    """Sum of the records' hashes, modulo 2**64 (see :mod:`ottla_pipeline.reading.checksum`), dead letters included."""
    dead: int = 0
    """The number of the records that were dead letters when they were read."""

    @property
    def checksum(self) -> Checksum:
        return Checksum(self.count, self.total)

    def joined(self, other: LandedRange) -> LandedRange:
        """This range and the one that begins where it ends."""
        both = self.checksum + other.checksum
        return LandedRange(self.start, other.end, both.count, both.total, self.dead + other.dead)


LandedRanges = Mapping[TopicPartition, tuple[LandedRange, ...]]


def limit(partitions: int) -> int:
    """The most ranges that a partition may have."""
    return max(4, min(64, _MOST // max(1, partitions)))


def by_topic(offsets: Mapping[TopicPartition, int]) -> OffsetsByTopic:
    found: OffsetsByTopic = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[partition] = offset
    return found


@dataclass(frozen=True)
class Ledger:
    """Ranges per partition, in order, and the topics' ids. Immutable: :meth:`extended` makes another."""

    landed: LandedRanges = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset to land, by partition."""
        return {at: ranges[-1].end for at, ranges in self.landed.items()}

    def next(self, at: TopicPartition) -> int | None:
        """The next offset to land of a partition; None if nothing of it was landed."""
        ranges = self.landed.get(at)
        return ranges[-1].end if ranges else None

    def extended(self, table: str, landed: LandedRanges, ids: Mapping[str, str], *, gaps: bool) -> Ledger:
        """The ledger with ``landed`` after it; with ``gaps``, offsets may be left out.

        Raises Collision if offsets are in the table already, or the topic was deleted and made again, and DataGone if
        offsets would be left out.
        """
        for topic, topic_id in ids.items():
            check_id(table, topic, self.ids.get(topic, ""), topic_id)
        result = dict(self.landed)
        most = limit(len({*result, *landed}))
        for at, new in landed.items():
            old = list(result.get(at, ()))
            for one in new:
                if old and one.start < old[-1].end:
                    raise Collision(
                        f"{table} has {at} up to offset {old[-1].end}, and offsets {one.start} to {one.end} were to be "
                        "added: another job lands in it; stop one of the two, and start the other again"
                    )
                if old and one.start > old[-1].end and not gaps:
                    raise DataGone(
                        f"{table} has {at} up to offset {old[-1].end}, and the next records begin at {one.start}: "
                        "those between are missing; give failOnDataLoss=false to go on without them"
                    )
                if not (old and one.start == one.end):
                    old.append(one)
            result[at] = tuple(_shortened(old, most))
        return Ledger(result, {**self.ids, **{topic: one for topic, one in ids.items() if one}})

    def rolled_back(self, ends: Mapping[TopicPartition, int]) -> Ledger:
        """The ledger of an older version of the table, of which only the ends are known.

        Of a range that went on behind the end, an empty one is left: it says where to go on.
        """
        landed = {}
        for at, end in ends.items():
            kept = tuple(one for one in self.landed.get(at, ()) if one.end <= end)
            landed[at] = kept if kept and kept[-1].end == end else (*kept, LandedRange(end, end))
        return Ledger(landed, self.ids)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for at in sorted(self.landed):
            one = found.setdefault(at.topic, {"id": self.ids.get(at.topic, ""), "partitions": {}})
            one["partitions"][str(at.partition)] = [
                [each.start, each.end, each.count, f"{each.total:016x}", each.dead]
                for each in self.landed[at]
            ]
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ledger:
        """Raises LandingError if this is no ledger."""
        landed: dict[TopicPartition, tuple[LandedRange, ...]] = {}
        ids: dict[str, str] = {}
        try:
            for topic, one in data.items():
                ids[topic] = str(one["id"])
                for partition, rows in one["partitions"].items():
                    landed[TopicPartition(topic, int(partition))] = tuple(
                        LandedRange(int(start), int(end), int(count), int(total, 16), int(dead))
                        for start, end, count, total, dead in rows
                    )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LandingError(
                f"the table's own record of what was landed can't be read: {error!r}"
            ) from error
        return cls(landed, ids)


def check_id(table: str, topic: str, known: str, found: str) -> None:
    """Raises Collision if the table was filled from another topic of the same name."""
    if known and found and known != found:
        raise Collision(
            f"topic {topic} was deleted and made again since {table} was filled from it (id {known} then, "
            f"{found} now): its offsets mean other records; land it in a new table"
        )


def _shortened(ranges: list[LandedRange], most: int) -> list[LandedRange]:
    """At most ``most`` ranges where neighbours touch: joins the two that are smallest together."""
    while len(ranges) > most:
        pairs = [
            (ranges[i + 1].end - ranges[i].start, i)
            for i in range(len(ranges) - 1)
            if ranges[i].end == ranges[i + 1].start
        ]
        if not pairs:
            break
        _, i = min(pairs)
        ranges[i : i + 2] = [ranges[i].joined(ranges[i + 1])]
    return ranges
