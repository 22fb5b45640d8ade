"""The topics that groups can subscribe to, as this broker knows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ottla_broker.metadata.cache import MetadataCache


class SubscribedTopic(NamedTuple):
    """A topic as far as assignments depend on it.

    Attributes:
        racks: the racks of each partition's replicas; empty where no broker has a rack.
    """

    topic_id: bytes
    partitions: int
    racks: tuple[frozenset[str], ...] = ()


class TopicsView(Protocol):
    """The cluster's topics as groups see them.

    Attributes:
        version: rises whenever a topic is created, deleted, or gets other partitions or replicas.
    """

    @property
    def version(self) -> int: ...

    def find(self, name: str) -> SubscribedTopic | None:
        """The topic; None if it doesn't exist, or has no id by which members could learn of it."""

    def name_of(self, topic_id: bytes) -> str | None: ...

    def names(self) -> Iterable[str]:
        """The topics that a regular expression may match: all but the internal ones."""


class CachedTopics:
    """The topics of the metadata cache. Owned by the loop thread."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        # A broker that is away has its replicas still: a rack doesn't change with it.
        self._racks: dict[int, str] = {}

    @property
    def version(self) -> int:
        return self._metadata.layout_version

    def find(self, name: str) -> SubscribedTopic | None:
        info = self._metadata.topic(name)
        if info is None or not any(info.topic_id):
            return None
        for broker_id, broker in self._metadata.brokers.items():
            if broker.rack is not None:
                self._racks[broker_id] = broker.rack
        # A new topic may be announced in parts; members get the partitions up to the first that is missing.
        count = next((index for index in range(len(info.partitions)) if index not in info.partitions), None)
        partitions = len(info.partitions) if count is None else count
        racks: tuple[frozenset[str], ...] = ()
        if self._racks:
            racks = tuple(
                frozenset(
                    self._racks[each] for each in info.partitions[index].replicas if each in self._racks
                )
                for index in range(partitions)
            )
        return SubscribedTopic(info.topic_id, partitions, racks)

    def name_of(self, topic_id: bytes) -> str | None:
        info = self._metadata.topic_by_id(topic_id)
        return None if info is None else info.name

    def names(self) -> Iterable[str]:
        return (topic.name for topic in self._metadata.topics() if not topic.internal)
