"""The lag of positions in topics, asked for when somebody scrapes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple

from ottla_client import TopicPartition
from ottla_client.errors import ClientError
from ottla_pipeline.source.cluster_queries import ClusterQueries
from ottla_pipeline.source.errors import SourceError

log = logging.getLogger("ottla_pipeline")

_SECONDS: Final = 5.0
"""The longest time for brokers to answer."""
_LEAST_PAUSE: Final = 1.0
_PAUSE: Final = 5.0
"""A look is kept for so many times as long as it took, at least for the least pause."""


Positions = Mapping[str, Mapping[TopicPartition, int]]
"""The next offsets by the name of a job or query."""


class Behind(NamedTuple):
    """The lag of a position: records up to the high watermark (:mod:`ottla_protocol.lag`), and the next one's age.

    ``seconds`` are 0.0 if there is no next record, None if it can't be read.
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
        found: dict[str, dict[TopicPartition, Behind]] = {}
        for name, offsets in positions.items():
            lags = self._cluster.lag_of(offsets)
            found[name] = {
                each: Behind(lag.records, lag.seconds)
                for each, lag in lags.items()
                if lag.records is not None
            }
        return found

    def close(self) -> None:
        self._cluster.close()
