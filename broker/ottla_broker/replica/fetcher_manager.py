"""The fetchers of a broker: a few for each leader, among which its partitions are dealt. ``ReplicaFetcherManager``."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from ottla_broker.replica.fetcher import Fetcher
from ottla_broker.replica.partition import Partition


class FetcherManager:
    """Owned by the loop thread."""

    def __init__(self, per_leader: int, make: Callable[[int], Fetcher]) -> None:
        """``per_leader`` is ``num.replica.fetchers``; ``make`` returns a new fetcher of a leader."""
        self._per_leader = per_leader
        self._make = make
        # By leader and share of its partitions.
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._is_adding = True

    def add(self, partition: Partition) -> None:
        if not self._is_adding:
            return
        share = (crc32(partition.topic.encode()) * 31 + partition.partition) % self._per_leader
        fetcher = self._fetchers.get((partition.leader, share))
        if fetcher is None:
            fetcher = self._fetchers[partition.leader, share] = self._make(partition.leader)
        fetcher.add(partition)

    def remove(self, topic: str, partition: int) -> None:
        """Stop fetching a partition; one that isn't fetched is no error."""
        for fetcher in self._fetchers.values():
            fetcher.remove((topic, partition))

    def hurry(self) -> None:
        """Have partitions that were added fetched now: see :meth:`.fetcher.Fetcher.hurry`."""
        for fetcher in self._fetchers.values():
            fetcher.hurry()

    async def close_idle(self) -> None:
        for key in [key for key, fetcher in self._fetchers.items() if not len(fetcher)]:
            await self._fetchers.pop(key).close()

    @property
    def behind(self) -> int:
        """Return the largest lag of a partition behind its leader, in committed records."""
        return max((fetcher.behind for fetcher in self._fetchers.values()), default=0)

    def stop_adding(self) -> None:
        """Fetch no further partitions: the broker hands its leaderships over in order to stop.

        Their new leaders would wait for it as for a replica that is about to be in sync, and then it would be gone.
        """
        self._is_adding = False

    async def close(self) -> None:
        """Stop all fetchers: the broker is stopping."""
        for fetcher in self._fetchers.values():
            await fetcher.close()
        self._fetchers.clear()
