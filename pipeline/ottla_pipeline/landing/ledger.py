"""What a table holds of each partition: spans of offsets, kept in the metadata of the table's own commits.

A commit carries the whole ledger, so the last one is enough to go on from. To keep it small, neighbouring spans are
joined, smallest first, once a partition has more than :func:`limit` of them: a checksum is a sum and can be joined.

As JSON: ``{topic: {"id": topic id, "partitions": {"0": [[start, end, records, checksum, dead letters], …]}}}``, the
checksum as 16 hexadecimal digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla_pipeline.landing.errors import Collision, DataGone, LandingError

_MASK = (1 << 64) - 1
_MOST = 2048
"""Spans in a whole ledger, about: they go into every commit, at some 40 bytes each."""

Place = tuple[str, int]
"""A topic and a partition."""
Offsets = dict[str, dict[int, int]]
"""Per topic and partition the next offset to land."""


@dataclass(frozen=True)
class Span:
    """Offsets ``[start, end)`` of a partition, all landed."""

    start: int
    end: int
    count: int = 0
    """Records in it: less than ``end - start`` where there are control batches, or compaction took some."""
    total: int = 0
    """Sum of the records' hashes, modulo 2**64 (see :mod:`ottla_pipeline.reading.checksum`), dead letters included."""
    dead: int = 0
    """How many of the records were dead letters when they were read."""

    def joined(self, other: Span) -> Span:
        """This span and the one that begins where it ends."""
        return Span(
            self.start,
            other.end,
            self.count + other.count,
            (self.total + other.total) & _MASK,
            self.dead + other.dead,
        )


Spans = Mapping[Place, tuple[Span, ...]]


def limit(partitions: int) -> int:
    """How many spans a partition may have."""
    return max(4, min(64, _MOST // max(1, partitions)))


@dataclass(frozen=True)
class Ledger:
    """Spans per partition, in order, and the ids of topics. Immutable: extending makes another."""

    spans: Spans = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    def offsets(self) -> Offsets:
        """Where each partition goes on."""
        found: Offsets = {}
        for (topic, partition), spans in self.spans.items():
            found.setdefault(topic, {})[partition] = spans[-1].end
        return found

    def next(self, place: Place) -> int | None:
        """Where ``place`` goes on; None if nothing of it was landed."""
        spans = self.spans.get(place)
        return spans[-1].end if spans else None

    def extended(self, table: str, spans: Spans, ids: Mapping[str, str], *, gaps: bool) -> Ledger:
        """The ledger with ``spans`` after it.

        ``gaps`` allows that offsets are left out (records that are gone, and the job was told to go on).

        :raises Collision: offsets are in the table already, or the topic is another of the same name.
        :raises DataGone: offsets would be left out.
        """
        for topic, topic_id in ids.items():
            check_id(table, topic, self.ids.get(topic, ""), topic_id)
        result = dict(self.spans)
        most = limit(len({*result, *spans}))
        for place, new in spans.items():
            old = list(result.get(place, ()))
            for span in new:
                if old and span.start < old[-1].end:
                    raise Collision(
                        f"{table} has {_name(place)} up to offset {old[-1].end}, and offsets {span.start} to "
                        f"{span.end} were to be added: another job lands in it; stop one of the two, and start the "
                        "other again"
                    )
                if old and span.start > old[-1].end and not gaps:
                    raise DataGone(
                        f"{table} has {_name(place)} up to offset {old[-1].end}, and the next records begin at "
                        f"{span.start}: those between are missing; give failOnDataLoss=false to go on without them"
                    )
                if not (old and span.start == span.end):
                    old.append(span)
            result[place] = tuple(_shortened(old, most))
        return Ledger(result, {**self.ids, **{topic: one for topic, one in ids.items() if one}})

    def to_json(self) -> dict[str, Any]:
        """A JSON object; keys in order."""
        found: dict[str, Any] = {}
        for topic, partition in sorted(self.spans):
            one = found.setdefault(topic, {"id": self.ids.get(topic, ""), "partitions": {}})
            one["partitions"][str(partition)] = [
                [span.start, span.end, span.count, f"{span.total:016x}", span.dead]
                for span in self.spans[topic, partition]
            ]
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ledger:
        """:raises LandingError: this is no ledger."""
        spans: dict[Place, tuple[Span, ...]] = {}
        ids: dict[str, str] = {}
        try:
            for topic, one in data.items():
                ids[topic] = str(one["id"])
                for partition, rows in one["partitions"].items():
                    spans[topic, int(partition)] = tuple(
                        Span(int(start), int(end), int(count), int(total, 16), int(dead))
                        for start, end, count, total, dead in rows
                    )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LandingError(
                f"the table's own record of what was landed can't be read: {error!r}"
            ) from error
        return cls(spans, ids)


def check_id(table: str, topic: str, known: str, found: str) -> None:
    """:raises Collision: the table was filled from another topic of the same name."""
    if known and found and known != found:
        raise Collision(
            f"topic {topic} was deleted and made again since {table} was filled from it (id {known} then, "
            f"{found} now): its offsets mean other records; land it in a new table"
        )


def _shortened(spans: list[Span], most: int) -> list[Span]:
    """At most ``most`` spans where neighbours touch: those two are joined that hold least together."""
    while len(spans) > most:
        pairs = [
            (spans[i + 1].end - spans[i].start, i)
            for i in range(len(spans) - 1)
            if spans[i].end == spans[i + 1].start
        ]
        if not pairs:
            break
        _, i = min(pairs)
        spans[i : i + 2] = [spans[i].joined(spans[i + 1])]
    return spans


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
