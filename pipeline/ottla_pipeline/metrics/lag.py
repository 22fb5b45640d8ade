"""The lag of positions in topics, asked for when somebody scrapes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Lock
from time import monotonic, time
from typing import Final, NamedTuple

from ottla_client import TopicPartition
from ottla_client.errors import ClientError
from ottla_pipeline.source.cluster_queries import ClusterQueries
from ottla_pipeline.source.errors import SourceError
from ottla_pipeline.source.options import Topics

log = logging.getLogger("ottla_pipeline")

_SECONDS: Final = 5.0
"""The longest time for brokers to answer."""
_LEAST_PAUSE: Final = 1.0
_PAUSE: Final = 5.0
"""A look is kept for so many times as long as it took, at least for the least pause."""


Positions = Mapping[str, Mapping[TopicPartition, int]]
"""The next offsets by the name of a job or query."""


class Behind(NamedTuple):
    """The lag of a position.

    ``records`` counts offsets up to the high watermark, markers of transactions included. ``seconds`` is the age of the
    next record: 0.0 if there is none, None if it can't be read.
    """

    records: int
    seconds: float | None


class LagProbe:
    """Asks brokers over connections of its own, so that a job's requests don't wait for those of a scrape.

    Any thread may use it; one looks at a time, and the others get what it has found.
    """

    def __init__(self, bootstrap_servers: str, client: Mapping[str, str]) -> None:
        """``client`` has Kafka's settings without ``kafka.``. Raises OptionError for an invalid one."""
        limit = str(int(_SECONDS * 1000))
        quick = {**client, "request.timeout.ms": limit, "default.api.timeout.ms": limit}
        self._cluster = ClusterQueries(bootstrap_servers, quick)
        self._lock = Lock()
        self._until = 0.0
        self._asked: Positions = {}
        self._found: Mapping[str, Mapping[TopicPartition, Behind]] = {}

    def look(self, positions: Positions) -> Mapping[str, Mapping[TopicPartition, Behind]]:
        """The lag of each job or query, in the partitions that have leaders; nothing if no broker answers."""
        with self._lock:
            began = monotonic()
            if self._asked == positions and began < self._until:
                return self._found
            try:
                self._found = self._look(positions)
            except (ClientError, SourceError) as error:
                log.info("how far behind the topics are is not known at this moment: %s", error)
                self._found = {}
            self._asked = {name: dict(offsets) for name, offsets in positions.items()}
            now = monotonic()
            self._until = now + max(_LEAST_PAUSE, _PAUSE * (now - began))
            return self._found

    def _look(self, positions: Positions) -> dict[str, dict[TopicPartition, Behind]]:
        every = sorted({each for offsets in positions.values() for each in offsets})
        if not every:
            return {name: {} for name in positions}
        cluster = self._cluster
        topics = cluster.topics(Topics(tuple(dict.fromkeys(each.topic for each in every))))
        led = [
            each
            for each in every
            if (topic := topics.get(each.topic)) is not None
            and (found := topic.partitions.get(each.partition)) is not None
            and found.leader is not None
        ]
        ends, starts = cluster.latest(led), cluster.earliest(led)
        return {name: self._behind(offsets, starts, ends) for name, offsets in positions.items()}

    def _behind(
        self,
        offsets: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, Behind]:
        # What retention has removed can't be read, but it was not read either: it counts as lag.
        unread = {
            each: max(offset, starts[each]) for each, offset in offsets.items() if offset < ends.get(each, 0)
        }
        firsts = self._cluster.times_at(unread)
        now = time()

        def age(partition: TopicPartition) -> float | None:
            if partition not in unread:
                return 0.0
            if partition not in firsts:
                return None
            first = firsts[partition]
            return 0.0 if first is None else max(0.0, now - first / 1000)

        return {
            each: Behind(max(0, ends[each] - offset), age(each))
            for each, offset in offsets.items()
            if each in ends
        }

    def close(self) -> None:
        self._cluster.close()
