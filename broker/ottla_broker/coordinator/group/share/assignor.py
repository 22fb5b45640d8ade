"""Shares partitions out among members: the assignor ``simple``. Kafka: ``SimpleAssignor``.

Each partition of a subscribed topic goes to at least one of the topic's subscribers, and each subscriber gets at least
one of its partitions: whichever are fewer are used several times, in turn. Members are taken in the order of their
joining, so that a new one changes little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla_broker.coordinator.group.share.group import Partitions

ASSIGNOR = "simple"


class Topic(NamedTuple):
    """A topic to share out, and who subscribes to it."""

    topic_id: bytes
    partitions: tuple[int, ...]
    subscribers: tuple[str, ...]


def assign(members: Iterable[str], topics: Iterable[Topic]) -> Mapping[str, Partitions]:
    found: dict[str, dict[bytes, set[int]]] = {member: {} for member in members}
    begin = 0
    for topic_id, partitions, subscribers in topics:
        if not partitions or not subscribers:
            continue
        for turn in range(max(len(partitions), len(subscribers))):
            member = subscribers[(begin + turn) % len(subscribers)]
            found[member].setdefault(topic_id, set()).add(partitions[turn % len(partitions)])
        # A topic with one partition isn't always the first member's.
        begin += len(partitions)
    return {
        member: {topic_id: frozenset(indexes) for topic_id, indexes in each.items()}
        for member, each in found.items()
    }
