"""Which partitions are younger than a consumer's subscription (KIP-1327).

Nothing was in them when the consumer came, so "latest" would skip what arrives before the consumer notices them, as in
Kafka's consumers. A topic that appears later is new as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla_protocol.errors import ErrorCode

from ..cluster import Cluster
from ..types import TopicPartition


class NewPartitions:
    """Belongs to one consumer. Partitions of topics that aren't subscribed are never new."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._first: dict[str, int] = {}
        """The number of partitions that a topic had when it was first looked up."""
        self._noted = False

    def look(self, names: Collection[str]) -> None:
        """Note how large the subscribed topics are that weren't noted before, as far as the metadata says so."""
        for name in self._first.keys() - set(names):
            del self._first[name]
        for name in names:
            if name in self._first:
                continue
            topic = self._cluster.topic(name)
            if topic is not None:
                self._first[name] = len(topic.partitions)
            elif self._cluster.topic_error(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._first[name] = 0

    def appeared(self, names: Collection[str]) -> None:
        """These topics were not there at an earlier look at all topics."""
        for name in names:
            self._first.setdefault(name, 0)

    def note(self, sizes: Mapping[str, int]) -> None:
        """Take the sizes of all topics from a group that says what to read, in place of ``look``."""
        for name, size in sizes.items():
            self._first.setdefault(name, 0 if self._noted else size)
        self._noted = True

    def __contains__(self, partition: TopicPartition) -> bool:
        first = self._first.get(partition.topic)
        return first is not None and partition.partition >= first
