"""Where a group's offsets are read and committed: ZooKeeper, Kafka, or both."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

import pytest

from ottla_client import OffsetAndMetadata, TopicPartition
from ottla_client.group.offsets import OffsetsClient
from ottla_client.zookeeper_consumer import paths
from ottla_client.zookeeper_consumer.offsets import GroupOffsets
from ottla_client.zookeeper_consumer.registry import Registry
from ottla_client.zookeeper_consumer.settings import OffsetsStorage


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


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
@pytest.mark.parametrize("dual", [True, False])
async def test_both_places_while_dual(storage: OffsetsStorage, dual: bool) -> None:
    """Commits go to both, the one of ``offsets_storage`` first, and the larger offset counts; otherwise to the one."""
    partitions = [TopicPartition("t", number) for number in range(4)]
    in_zookeeper = {partitions[0]: 5, partitions[1]: 9, partitions[2]: 3}
    in_kafka = {partitions[0]: 8, partitions[1]: 2, partitions[3]: 4}
    nodes = {paths.offset("g", each): str(offset).encode() for each, offset in in_zookeeper.items()}
    written: list[tuple[str, int]] = []
    registry, client = AsyncMock(Registry), AsyncMock(OffsetsClient)
    registry.read.side_effect = nodes.get
    client.fetch.return_value = {each: OffsetAndMetadata(offset) for each, offset in in_kafka.items()}
    registry.write.side_effect = lambda _, data: written.append(("zookeeper", int(data)))
    client.commit.side_effect = lambda offsets, _: written.extend(
        ("kafka", each.offset) for each in offsets.values()
    )
    offsets = GroupOffsets(registry, client, "g", storage, 1.0, dual=dual)
    found = await offsets.fetch(partitions)
    await offsets.commit(lambda: {partitions[0]: 10})
    other = "kafka" if storage == "zookeeper" else "zookeeper"
    if dual:
        assert found == dict(zip(partitions, [8, 9, 3, 4], strict=True))
        assert written == [(storage, 10), (other, 10)]
    else:
        assert found == (in_zookeeper if storage == "zookeeper" else in_kafka)
        assert written == [(storage, 10)]
