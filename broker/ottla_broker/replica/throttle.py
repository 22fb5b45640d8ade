"""How fast replicas are copied that are not in sync: Kafka's ``ReplicationQuotaManager`` (KIP-73).

A limit counts for the replicas that topics name: as ``PARTITION:BROKER,…``, or ``*`` for all. Leaders and followers
have one each. What has been sent or received of them is added up in windows; while there is more of it than the limit
allows, partitions are left out of fetches whose follower is not in sync. A fetch may go beyond the limit, the next ones
make up for it. Who is in sync is never held up, as acks=all waits for it, but what it copies counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from ottla_broker.clock import Clock

ALL: Final = "*"
UNLIMITED: Final = 2**63 - 1


class Throttle:
    """One side's limit. Owned by the loop thread.

    ``marks`` gives what a topic's setting names. Without a limit nothing is asked for and nothing counted.
    """

    def __init__(
        self,
        clock: Clock,
        broker_id: int,
        marks: Callable[[str], str],
        windows: int = 11,
        window_seconds: float = 1.0,
    ) -> None:
        self.limit = UNLIMITED
        self._clock = clock
        self._broker_id = broker_id
        self._marks = marks
        self._most_seconds = windows * window_seconds
        self._window_seconds = window_seconds
        # The windows that count, oldest first: when each began, and how many bytes were in it.
        self._windows: deque[list[float]] = deque()

    def marked(self, topic: str, partition: int) -> bool:
        """Whether the limit is for this broker's replica of a partition."""
        if self.limit == UNLIMITED:
            return False
        text = self._marks(topic)
        if not text:
            return False
        named = _named(text, self._broker_id)
        return named is None or partition in named

    def count(self, size: int) -> None:
        """So many bytes of marked replicas have been copied."""
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
        while self._windows and now - self._windows[0][0] >= self._most_seconds:
            self._windows.popleft()


@lru_cache(maxsize=1000)
def _named(text: str, broker_id: int) -> frozenset[int] | None:
    """The partitions whose replica on a broker is named; None for all of them."""
    if text.strip() == ALL:
        return None
    pairs = (entry.strip().partition(":") for entry in text.split(",") if entry.strip())
    return frozenset(int(partition) for partition, _, broker in pairs if int(broker) == broker_id)
