"""A limit on copying replicas that are not in sync: Kafka's ``ReplicationQuotaManager`` (KIP-73).

Topics name the replicas that are limited, as ``PARTITION:BROKER,…``, or ``*`` for all. A broker has one limit as leader
and one as follower. The bytes copied are added up in windows; while they exceed the limit, fetches leave out partitions
whose follower is not in sync. One fetch may exceed the limit, the next ones make up for it. In-sync replicas are never
delayed, because acks=all waits for them, but their bytes count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from ottla_broker.clock import Clock

ALL: Final = "*"
UNLIMITED: Final = 2**63 - 1


class ReplicationQuota:
    """The limit of one side, leader or follower. Owned by the loop thread."""

    def __init__(
        self,
        clock: Clock,
        broker_id: int,
        throttled_replicas: Callable[[str], str],
        windows: int = 11,
        window_seconds: float = 1.0,
    ) -> None:
        """``throttled_replicas`` returns a topic's ``leader.`` or ``follower.replication.throttled.replicas``."""
        self.limit = UNLIMITED
        self._clock = clock
        self._broker_id = broker_id
        self._throttled_replicas = throttled_replicas
        self._span_seconds = windows * window_seconds
        self._window_seconds = window_seconds
        # Start and bytes of each window that counts, oldest first.
        self._windows: deque[list[float]] = deque()

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether the limit applies to this broker's replica of a partition."""
        if self.limit == UNLIMITED:
            return False
        text = self._throttled_replicas(topic)
        if not text:
            return False
        named = _named(text, self._broker_id)
        return named is None or partition in named

    def record(self, size: int) -> None:
        """Count bytes that were copied of throttled replicas."""
        now = self._clock.monotonic()
        windows = self._windows
        if not windows or now - windows[-1][0] >= self._window_seconds:
            windows.append([now, 0.0])
        windows[-1][1] += size
        self._forget(now)

    @property
    def exceeded(self) -> bool:
        """Whether more has been copied than the limit allows."""
        if self.limit == UNLIMITED:
            return False
        now = self._clock.monotonic()
        self._forget(now)
        if not self._windows:
            return False
        seconds = max(self._window_seconds, now - self._windows[0][0])
        return sum(size for _, size in self._windows) / seconds > self.limit

    def _forget(self, now: float) -> None:
        while self._windows and now - self._windows[0][0] >= self._span_seconds:
            self._windows.popleft()


@lru_cache(maxsize=1000)
def _named(text: str, broker_id: int) -> frozenset[int] | None:
    """The partitions whose replica on a broker is named; None for all partitions."""
    if text.strip() == ALL:
        return None
    pairs = (entry.strip().partition(":") for entry in text.split(",") if entry.strip())
    return frozenset(int(partition) for partition, _, broker in pairs if int(broker) == broker_id)
