"""Commits of a group's offsets to ZooKeeper."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

from ottla_client import TopicPartition
from ottla_client.zookeeper_consumer import paths
from ottla_client.zookeeper_consumer.offsets import GroupOffsets
from ottla_client.zookeeper_consumer.registry import Registry


async def test_a_slow_commit_takes_no_partition_back() -> None:
    """The regular commit is amid its partitions when a rebalance commits one of them and gives it up."""
    first, given_up = TopicPartition("t", 0), TopicPartition("t", 1)
    written: dict[str, bytes] = {}
    goes_on = asyncio.Event()

    async def write(path: str, data: bytes) -> None:
        if path == paths.offset("g", first):
            await goes_on.wait()
        written[path] = data

    registry = AsyncMock(Registry)
    registry.write.side_effect = write
    offsets = GroupOffsets(registry, None, "g", "zookeeper", 1.0, dual=False)
    processed = {first: 1, given_up: 1}
    regular = asyncio.create_task(offsets.commit(lambda: processed))
    await asyncio.sleep(0)
    last = asyncio.create_task(offsets.commit(lambda: {given_up: 2}))
    waiting = asyncio.create_task(offsets.commit(lambda: processed))
    await asyncio.sleep(0)
    processed = {first: 1}
    goes_on.set()
    await asyncio.gather(regular, last, waiting)
    assert written == {paths.offset("g", first): b"1", paths.offset("g", given_up): b"2"}
