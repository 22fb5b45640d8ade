"""Offsets of a set of partitions, and the JSON that Spark keeps of them in its checkpoints.

The text is that of Spark's Kafka connector, ``{"orders":{"0":23,"1":42}}``: for each partition the offset of the next
record to read. Further facts are in keys that can't be names of topics, each with an empty object, so that anything
that reads Spark's text can read this one, including Spark's connector::

    "#id orders 0f3a…"      the topic's id, so that a topic deleted and made again is noticed
    "#first"                nothing has been read yet: these are the offsets that a query begins at
    "#since {…}"            this is the end of a query's first batch, which began at these offsets
    "#bytes {…}"            about how many bytes of the log an offset takes, for partitions that the batch reads

Spark keeps the end of a batch, but not the offsets that a query began at: it asks for those again if a query restarts
before its first batch is done. ``startingOffsets=latest`` would lose records then. So the end of the first batch says
where it began.

A batch that runs again must be split into the same tasks. The log's size will have changed by then, so ``#bytes`` keeps
what the split was based on.

Spark compares offsets as text, so equal offsets have equal texts: keys are sorted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ottla_client import TopicPartition

from .errors import SourceError

Number = TypeVar("Number", int, float)

_ID: Final = "#id "
_FIRST: Final = "#first"
_SINCE: Final = "#since "
_BYTES: Final = "#bytes "


@dataclass(frozen=True)
class Offsets:
    """The offset of the next record to read, by partition.

    ``ids`` has the topics' ids, 32 hexadecimal digits, where they are known. ``first``, ``since`` and ``bytes`` are
    described above; a ``bytes`` of None means that sizes were not looked up.
    """

    of: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)
    first: bool = False
    since: Mapping[TopicPartition, int] | None = None
    bytes: Mapping[TopicPartition, float] | None = None

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self.of})

    def to_json(self) -> dict[str, Any]:
        """For Spark, which keeps it as text in its checkpoint."""
        made: dict[str, Any] = by_topic(self.of)
        for topic in self.topics:
            if topic in self.ids:
                made[f"{_ID}{topic} {self.ids[topic]}"] = {}
        if self.first:
            made[_FIRST] = {}
        if self.since is not None:
            made[_SINCE + json.dumps(by_topic(self.since))] = {}
        if self.bytes is not None:
            made[_BYTES + json.dumps(by_topic(self.bytes))] = {}
        return made

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Offsets:
        """From what :meth:`to_json` or Spark's connector made. Raises SourceError."""
        of: dict[TopicPartition, int] = {}
        ids: dict[str, str] = {}
        first, since = False, None
        sizes: dict[TopicPartition, float] | None = None
        try:
            for name, value in given.items():
                if name.startswith(_ID):
                    topic, id = name.removeprefix(_ID).split(" ")
                    ids[topic] = id
                elif name == _FIRST:
                    first = True
                elif name.startswith(_SINCE):
                    since = cls.of_text(name.removeprefix(_SINCE)).of
                elif name.startswith(_BYTES):
                    by_topic_ = json.loads(name.removeprefix(_BYTES))
                    sizes = {
                        at: float(size) for topic in by_topic_ for at, size in _each(topic, by_topic_[topic])
                    }
                else:
                    of.update((at, _offset(offset)) for at, offset in _each(name, value))
        except (AttributeError, TypeError, ValueError):
            raise SourceError(f"these are no offsets of topics: {_short(json.dumps(given))}") from None
        return cls(of, ids, first, since, sizes)

    @classmethod
    def of_text(cls, text: str) -> Offsets:
        """As ``of_json``."""
        try:
            given = json.loads(text)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise SourceError(f"these are no offsets of topics: {_short(text)}")
        return cls.of_json(given)


def by_topic(numbers: Mapping[TopicPartition, Number]) -> dict[str, dict[str, Number]]:
    """Spark's form, sorted: topics by name, partitions by number."""
    made: dict[str, dict[str, Number]] = {}
    for partition in sorted(numbers):
        made.setdefault(partition.topic, {})[str(partition.partition)] = numbers[partition]
    return made


def _each(topic: str, numbers: Mapping[str, Any]) -> Iterator[tuple[TopicPartition, Any]]:
    return ((TopicPartition(topic, int(number)), value) for number, value in numbers.items())


def names(partitions: Iterable[TopicPartition], at_most: int = 5) -> str:
    every = sorted(partitions)
    more = f" and {len(every) - at_most} more" if len(every) > at_most else ""
    return ", ".join(map(str, every[:at_most])) + more


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"
