"""Where the group's offsets are: in ZooKeeper, in Kafka, or for a migration in both.

"1. Set ``offsets.storage=kafka`` and ``dual.commit.enabled=true`` in your consumer config. 2. Do a rolling bounce of
your consumers and then verify that your consumers are healthy. 3. Set ``dual.commit.enabled=false`` in your consumer
config. 4. Do a rolling bounce of your consumers and then verify that your consumers are healthy. A roll-back (i.e.,
migrating from Kafka back to ZooKeeper) can also be performed using the above steps if you set
``offsets.storage=zookeeper``."

Java's consumer commits to ZooKeeper only when ``offsets.storage`` is zookeeper, whatever ``dual.commit.enabled`` says,
so its roll-back reads old offsets in between. Here both directions commit to both places and read the larger offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from ..deadline import Deadline
from ..errors import RequestTimeoutError
from ..group.offsets import OffsetsClient
from ..types import OffsetAndMetadata, TopicPartition
from . import paths
from .registry import Registry
from .settings import OffsetsStorage


class GroupOffsets:
    """Reads and commits a group's offsets. ``client`` None: offsets are in ZooKeeper only."""

    def __init__(
        self,
        registry: Registry,
        client: OffsetsClient | None,
        group_id: str,
        storage: OffsetsStorage,
        timeout: float,
        *,
        dual: bool,
    ) -> None:
        """``dual`` uses both places, the one of ``storage`` first; ``timeout`` in seconds for each call."""
        self._registry = registry
        self._client = client
        self._group_id = group_id
        self._storage = storage
        self._timeout = timeout
        self._dual = dual
        self._committed: dict[TopicPartition, int] = {}
        self._lock = asyncio.Lock()

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets, without partitions that have none. Raises ClientError."""
        found: dict[TopicPartition, int] = {}
        if self._uses("zookeeper"):
            for partition in partitions:
                path = paths.offset(self._group_id, partition)
                node = await self._registry.read(path)
                if node is not None:
                    found[partition] = paths.read_offset(path, node)
        if self._uses("kafka"):
            for partition, each in (await self._kafka().fetch(partitions, Deadline(self._timeout))).items():
                # While both are in use, a member that wasn't restarted yet commits to one of them.
                found[partition] = max(each.offset, found.get(partition, -1))
        found = {partition: offset for partition, offset in found.items() if offset >= 0}
        for partition in partitions:
            self._committed.pop(partition, None)
        if not self._dual:
            self._committed.update(found)
        return found

    async def commit(self, offsets: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Commit offsets, except for those that are committed already. Raises ClientError.

        One commit at a time, and each asks for its ``offsets`` when its turn comes: an older one that ended later
        would take a partition back, which another member may own by then.
        """
        deadline = Deadline(self._timeout)
        try:
            async with deadline.timeout(), self._lock:
                await self._commit(offsets(), deadline)
        except TimeoutError:
            raise RequestTimeoutError(
                f"group {self._group_id!r}: offsets are not committed within {self._timeout:g} s"
            ) from None

    async def _commit(self, offsets: Mapping[TopicPartition, int], deadline: Deadline) -> None:
        new = {
            partition: offset
            for partition, offset in offsets.items()
            if self._committed.get(partition) != offset
        }
        if not new:
            return
        first, second = ("zookeeper", "kafka") if self._storage == "zookeeper" else ("kafka", "zookeeper")
        await self._commit_to(first, new, deadline)
        if self._dual:
            await self._commit_to(second, new, deadline)
        self._committed.update(new)

    async def _commit_to(
        self, storage: str, offsets: Mapping[TopicPartition, int], deadline: Deadline
    ) -> None:
        if storage == "kafka":
            exact = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
            await self._kafka().commit(exact, deadline)
            return
        for partition, offset in offsets.items():
            await self._registry.write(paths.offset(self._group_id, partition), str(offset).encode())

    def _uses(self, storage: str) -> bool:
        return self._dual or self._storage == storage

    def _kafka(self) -> OffsetsClient:
        assert self._client is not None, "made where offsets are in Kafka"
        return self._client
