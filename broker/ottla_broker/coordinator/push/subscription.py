"""``topic_count`` of a registration: the topics that a consumer reads, and its number of streams.

Kafka 0.7's text, from ``TopicCount``: a JSON object of numbers by topic, ``{"orders":2}``, or a pattern with a number,
``*2*order.*`` for the topics that match it and ``!2!test.*`` for those that don't.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from ottla_broker.coordinator.group.modern.patterns import Matches, compile_pattern
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_protocol.errors import ErrorCode, KafkaError

MAX_STREAMS: Final = 1_000
_WILDCARD: Final = re.compile(r"([*!])([0-9]{1,9})[*!](.*)", re.DOTALL)
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class PushSubscription(NamedTuple):
    """Streams by topic, or a pattern: ``matches``, with ``each`` streams for every topic."""

    streams: Mapping[str, int]
    matches: Matches | None = None
    each: int = 0

    def topics(self, known: Iterable[str]) -> Mapping[str, int]:
        """The number of streams by topic; ``known`` are the topics that exist, for patterns."""
        if self.matches is None:
            return self.streams
        return {topic: self.each for topic in known if topic not in INTERNAL_TOPICS and self.matches(topic)}


@lru_cache(1024)
def parse_topic_count(text: str) -> PushSubscription:
    """Raises KafkaError: INVALID_REQUEST, INVALID_TOPIC_EXCEPTION or INVALID_REGULAR_EXPRESSION."""
    wildcard = _WILDCARD.fullmatch(text)
    if wildcard is not None:
        count = _checked(int(wildcard[2]))
        matches = compile_pattern(wildcard[3])
        if wildcard[1] == "!":
            return PushSubscription({}, lambda topic: not matches(topic), count)
        return PushSubscription({}, matches, count)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not found:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f'topic_count is {text[:80]!r}; write streams by topic, such as {{"orders":2}}, or a pattern, such as'
            " *2*order.*",
        )
    streams = {}
    for topic, count in found.items():
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic_count has {topic[:80]!r}, which can't be a topic"
            )
        streams[topic] = _checked(count)
    return PushSubscription(streams)


def _checked(count: object) -> int:
    if type(count) is not int or not 1 <= count <= MAX_STREAMS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"topic_count asks for {str(count)[:20]} streams of a topic; 1 to {MAX_STREAMS} are allowed",
        )
    return count
