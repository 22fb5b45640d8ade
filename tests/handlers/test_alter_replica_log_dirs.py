"""AlterReplicaLogDirs and DescribeLogDirs with several data folders (KIP-113)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.log.batches import batch
from tests.support.handlers import INTER_BROKER, answered, request_context, services
from tests.support.log_dirs import KEEP, TOPIC_ID, World

from ottla_broker.background import Background
from ottla_broker.handlers import alter_replica_log_dirs, describe_log_dirs
from ottla_broker.log.files import Files
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla_protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    background = Background(4)
    made = await World(tmp_path, background, KEEP, Files(64)).load()
    yield made
    await made.replicas.moves.close()
    made.kill()
    background.close()


def context(world: World, key: ApiKey, version: int) -> Any:
    partitions = SimpleNamespace(partitions={0: None, 1: None, 2: None})
    topics = {"t": partitions, "elsewhere": partitions}
    given = services(logs=world.logs, replicas=world.replicas, metadata=SimpleNamespace(topic=topics.get))
    return request_context(given, version, key, INTER_BROKER)


async def alter(world: World, *wanted: tuple[str, str, int], version: int = 2) -> list[ErrorCode]:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=str(world.root / folder),
                topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])],
            )
            for folder, topic, index in wanted
        ]
    )
    answer = await answered(
        alter_replica_log_dirs, context(world, ApiKey.ALTER_REPLICA_LOG_DIRS, version), request
    )
    found = {
        (each.topic_name, part.partition_index): ErrorCode(part.error_code)
        for each in answer.results
        for part in each.partitions
    }
    return [found[topic, index] for _, topic, index in wanted]


async def describe(world: World, *topics: str) -> dict[str, list[tuple[str, int, bool, int]]]:
    asked = [DescribableLogDirTopic(topic=topic, partitions=[0]) for topic in topics] or None
    answer = await answered(
        describe_log_dirs, context(world, ApiKey.DESCRIBE_LOG_DIRS, 4), DescribeLogDirsRequest(topics=asked)
    )
    return {
        Path(each.log_dir).name: [
            (topic.name, part.partition_index, part.is_future_key, part.offset_lag)
            for topic in each.topics
            for part in topic.partitions
        ]
        for each in answer.results
    }


@pytest.mark.parametrize("version", range(3))
async def test_errors(world: World, version: int) -> None:
    world.lead()
    assert await alter(
        world,
        ("b", "t", 0),
        ("nowhere", "t", 1),
        ("b", "elsewhere", 0),
        ("b", "absent", 0),
        ("b", "l" * 220, 0),
        version=version,
    ) == [
        ErrorCode.NONE,
        ErrorCode.LOG_DIR_NOT_FOUND,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


async def test_storage_errors(world: World) -> None:
    partition = world.lead()
    world.replicas._folder_failed(str(world.root / "c"))
    assert await alter(world, ("c", "t", 0)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert await alter(world, ("b", "t", 0)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert await alter(world, ("a", "t", 0)) == [ErrorCode.NONE]
    partition.go_offline()
    assert await alter(world, ("a", "t", 0)) == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_a_partition_is_created_in_the_folder_that_was_asked_for(world: World) -> None:
    for index, folder in enumerate("ccb"):
        assert await alter(world, (folder, "t", index)) == [ErrorCode.REPLICA_NOT_AVAILABLE]
    for index in range(3):
        world.replicas.become_leader("t", index, TOPIC_ID, 0, KEEP)
    assert {name: [part[1] for part in found] for name, found in (await describe(world)).items()} == {
        "a": [],
        "b": [2],
        "c": [0, 1],
    }


async def test_a_move_is_described_until_it_is_done(world: World) -> None:
    partition = world.lead()
    for _ in range(5):
        partition.append(memoryview(batch(3)), 1)
    quota = world.replicas.moves.quota
    quota.limit = 0
    quota.record(1)
    assert await alter(world, ("b", "t", 0)) == [ErrorCode.NONE]
    for topics in ((), ("t",)):
        assert await describe(world, *topics) == {
            "a": [("t", 0, False, 0)],
            "b": [("t", 0, True, 15)],
            "c": [],
        }
    quota.limit = 1 << 40
    await world.moved()
    assert await describe(world) == {"a": [], "b": [("t", 0, False, 0)], "c": []}
