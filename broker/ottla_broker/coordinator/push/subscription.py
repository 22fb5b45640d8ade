"""``topic_count`` of a registration: the topics that a consumer reads, and its number of streams.

Kafka 0.7's text, from ``TopicCount``: a JSON object of numbers by topic, ``{"orders":2}``, or a pattern with a number,
``*2*order.*`` for the topics that match it and ``!2!test.*`` for those that don't.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ottla_broker.coordinator.group.modern.patterns import MAX_BYTES, Matches, compile_pattern
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_protocol.errors import ErrorCode, KafkaError

MAX_STREAMS: Final = 1_000
MOST_BYTES: Final = 64 << 20
"""What the subscriptions of all registered consumers may take, estimated. Equal texts count once."""
_TOPIC_BYTES: Final = 250
"""A topic's name and number, its place in a dict, and in the set of topics that were found."""
_WILDCARD: Final = re.compile(r"([*!])([0-9]{1,9})[*!](.*)", re.DOTALL)
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(eq=False, slots=True)
class PushSubscription:
    """Streams by topic, or a pattern: ``matches``, with ``each`` streams for every topic.

    Consumers with the same text share it.
    """

    text: str
    streams: Mapping[str, int]
    matches: Matches | None = None
    each: int = 0
    users: int = 0
    """How many consumers have it, or register with it."""
    found: frozenset[str] = frozenset()
    """The topics that existed when a group of these consumers was last rebalanced."""

    @property
    def cost(self) -> int:
        """Estimated bytes."""
        pattern = 0 if self.matches is None else MAX_BYTES
        return pattern + len(self.text) + _TOPIC_BYTES * (1 + len(self.streams))

    def count(self, topic: str) -> int:
        """The number of streams for a topic; 0: it isn't read."""
        if self.matches is None:
            return self.streams.get(topic, 0)
        return self.each if topic not in INTERNAL_TOPICS and self.matches(topic) else 0

    def streams_of(self, topic: str) -> int:
        """The number of streams for a topic that is known to be read."""
        return self.streams[topic] if self.matches is None else self.each

    def among(self, known: Collection[str]) -> Iterator[str]:
        """Those of the topics that are read. ``known`` is a set, or what the topics of one turn are."""
        if self.matches is None:
            return (topic for topic in self.streams if topic in known)
        return (topic for topic in known if self.count(topic))


class Subscriptions:
    """The subscriptions of all consumers, one object for each text. Owned by the loop thread.

    Attributes:
        bytes: the estimated size of all.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._by_text: dict[str, PushSubscription] = {}

    def __iter__(self) -> Iterator[PushSubscription]:
        return iter(tuple(self._by_text.values()))

    def __len__(self) -> int:
        return len(self._by_text)

    def take(self, text: str) -> PushSubscription:
        """The subscription of one more consumer; :meth:`give_back` undoes it.

        Raises KafkaError: as :func:`parse_topic_count`, and GROUP_MAX_SIZE_REACHED when all take too much memory.
        """
        subscription = self._by_text.get(text)
        if subscription is None:
            subscription = parse_topic_count(text)
            if self.bytes + subscription.cost > MOST_BYTES:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"the consumers here subscribe to too many topics and patterns: {len(self)} different"
                    f" subscriptions take {self.bytes >> 20} MiB; let the consumers of a group use the same text",
                )
            self._by_text[text] = subscription
            self.bytes += subscription.cost
        subscription.users += 1
        return subscription

    def give_back(self, subscription: PushSubscription) -> bool:
        """A consumer has gone. Returns whether it was the last one with this subscription."""
        subscription.users -= 1
        if subscription.users:
            return False
        del self._by_text[subscription.text]
        self.bytes -= subscription.cost
        return True


def parse_topic_count(text: str) -> PushSubscription:
    """Raises KafkaError: INVALID_REQUEST, INVALID_TOPIC_EXCEPTION or INVALID_REGULAR_EXPRESSION."""
    wildcard = _WILDCARD.fullmatch(text)
    if wildcard is not None:
        count = _checked(int(wildcard[2]))
        matches = compile_pattern(wildcard[3])
        if wildcard[1] == "!":
            return PushSubscription(text, {}, lambda topic: not matches(topic), count)
        return PushSubscription(text, {}, matches, count)
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
    return PushSubscription(text, streams)


def _checked(count: object) -> int:
    if type(count) is not int or not 1 <= count <= MAX_STREAMS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"topic_count asks for {str(count)[:20]} streams of a topic; 1 to {MAX_STREAMS} are allowed",
        )
    return count
