"""Which topics a member of the group reads, with how many streams, as its node in ZooKeeper says.

Source: ``TopicCount`` and ``TopicFilter`` of Kafka 0.8.2 and 0.10.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ottla_protocol.partitioning import LAG_TOPIC

from ..errors import BadNodeError, ConfigurationError
from .paths import read_object

_STATIC: Final = "static"
_WHITE_LIST: Final = "white_list"
_BLACK_LIST: Final = "black_list"
_VERSION: Final = 1
MOST_STREAMS: Final = 1_000
"""Streams of a member for a topic: each member of the group computes what each stream of each member reads."""
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", LAG_TOPIC})


class ThreadId(NamedTuple):
    """One stream of a consumer: what owns a partition."""

    consumer_id: str
    stream: int

    def __str__(self) -> str:
        return f"{self.consumer_id}-{self.stream}"


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Topics by a regular expression, which must match the whole name; ``white_list`` or ``black_list``."""

    kind: str
    regex: str

    def __post_init__(self) -> None:
        try:
            _compile(self.regex)
        except re.error as error:
            raise ConfigurationError(f"{self.regex!r} is not a regular expression: {error}") from error

    def allows(self, topic: str) -> bool:
        return _compile(self.regex)(topic) == (self.kind == _WHITE_LIST)


@lru_cache(maxsize=100)
def _compile(regex: str) -> Callable[[str], bool]:
    """A function that says whether an expression matches a whole name. Raises re.error.

    Another member's node may have an expression that takes Python hours. RE2, if it is installed, takes time linear in
    the name; it refuses some expressions of Java's, such as ``(?!test).*``, which are left to Python.
    """
    python = re.compile(regex)
    try:
        import re2
    except ImportError:
        return lambda topic: python.fullmatch(topic) is not None
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        linear = re2.compile(regex, options)
    except re2.error:
        return lambda topic: python.fullmatch(topic) is not None
    return lambda topic: linear.fullmatch(topic) is not None


def Whitelist(regex: str) -> TopicFilter:
    """All topics that match. A comma separates alternatives, as in Kafka. Raises ConfigurationError."""
    return TopicFilter(_WHITE_LIST, _cleaned(regex))


def Blacklist(regex: str) -> TopicFilter:
    """All topics that don't match. Raises ConfigurationError."""
    return TopicFilter(_BLACK_LIST, _cleaned(regex))


def _cleaned(regex: str) -> str:
    """As Kafka: commas are alternatives, blanks go, and so do quotes around it, which property files may bring."""
    return regex.strip().replace(",", "|").replace(" ", "").strip("\"'")


@dataclass(frozen=True, slots=True)
class Subscription:
    """Streams by topic, or a filter with its number of streams."""

    streams: Mapping[str, int]
    """By topic; with a filter, by its regular expression."""
    filter: TopicFilter | None = None

    @classmethod
    def to_topics(cls, streams: Mapping[str, int]) -> Subscription:
        """Raises ConfigurationError for a topic without streams."""
        for topic, count in streams.items():
            if not isinstance(topic, str) or not topic:
                raise ConfigurationError(f"{topic!r} is not the name of a topic")
            _check_count(count)
        if not streams:
            raise ConfigurationError("there is nothing to read: name topics and their number of streams")
        return cls(dict(streams))

    @classmethod
    def by_filter(cls, topics: TopicFilter, count: int) -> Subscription:
        """Raises ConfigurationError for a filter without streams."""
        _check_count(count)
        return cls({topics.regex: count}, topics)

    def topics(self, known: Collection[str], *, exclude_internal: bool) -> dict[str, int]:
        """The number of streams of each topic; ``known`` are the topics of the cluster, for filters."""
        if self.filter is None:
            return dict(self.streams)
        (count,) = self.streams.values()
        return {
            topic: count
            for topic in known
            if self.filter.allows(topic) and not (exclude_internal and topic in _INTERNAL)
        }

    def encode(self, timestamp_ms: int) -> bytes:
        """The data of the member's node."""
        node = {
            "version": _VERSION,
            "subscription": dict(self.streams),
            "pattern": _STATIC if self.filter is None else self.filter.kind,
            # A text, because Kafka 0.8 reads every number in JSON as 32 bits.
            "timestamp": str(timestamp_ms),
        }
        return json.dumps(node, separators=(",", ":")).encode()

    def topic_count(self) -> str:
        """The text of a registration with the coordinator designed in 2012, which is Kafka 0.7's ``TopicCount``."""
        if self.filter is None:
            return json.dumps(dict(self.streams), separators=(",", ":"))
        mark = "*" if self.filter.kind == _WHITE_LIST else "!"
        (count,) = self.streams.values()
        return f"{mark}{count}{mark}{self.filter.regex}"

    @classmethod
    def decode(cls, path: str, data: bytes) -> Subscription:
        """Raises BadNodeError."""
        found: dict[str, Any] = read_object(path, data)
        try:
            streams = {str(topic): int(count) for topic, count in found["subscription"].items()}
            kind = found["pattern"]
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise BadNodeError(f"ZooKeeper's node {path} is not a consumer's: {data[:200]!r}") from error
        if not all(1 <= count <= MOST_STREAMS for count in streams.values()):
            raise BadNodeError(
                f"ZooKeeper's node {path} has a topic without streams, or with more than {MOST_STREAMS}:"
                f" {data[:200]!r}"
            )
        if kind not in (_WHITE_LIST, _BLACK_LIST) or not streams:
            return cls(streams)
        regex, count = next(iter(streams.items()))
        try:
            return cls({regex: count}, TopicFilter(kind, regex))
        except ConfigurationError as error:
            raise BadNodeError(f"ZooKeeper's node {path}: {error}") from error


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_STREAMS:
        raise ConfigurationError(f"the number of streams is {count!r}; it must be from 1 to {MOST_STREAMS}")
