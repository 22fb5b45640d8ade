"""Topics that are deleted, created again, and grow."""

from __future__ import annotations

import asyncio
import errno
import io
import json
from collections.abc import Awaitable, Callable

import pytest
from tests.controller.test_create import create
from tests.support.world import World

from ottla_broker.controller.api import MorePartitions, NewTopic, TopicToDelete
from ottla_protocol.errors import ErrorCode, KafkaError

Open = Callable[..., Awaitable[World]]


async def delete(world: World, name: str) -> ErrorCode:
    return (await world.controller.delete_topics([TopicToDelete(name)]))[0].error


def epochs(world: World, name: str) -> list[int]:
    info = world.metadata.topic(name)
    assert info is not None
    return [partition.leader_epoch for partition in info.partitions.values()]


async def test_a_deleted_topic_is_gone(world: World) -> None:
    await create(world, "t", 2)
    gone: list[tuple[str, list[int]]] = []
    world.controller.on_topic_deleted.append(lambda topic, partitions: gone.append((topic, list(partitions))))
    assert await delete(world, "t") is ErrorCode.NONE
    assert world.metadata.topic("t") is None
    assert world.replicas.partition("t", 0) is None
    assert not (world.folder / "t-0").exists()
    assert await world.store.children("/brokers/topics") == []
    assert await world.store.children("/config/topics") == []
    assert await world.store.children("/admin/delete_topics") == []
    assert gone == [("t", [0, 1])]
    assert await delete(world, "t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_by_id(world: World) -> None:
    made = await create(world, "t")
    outcomes = await world.controller.delete_topics(
        [TopicToDelete(None, b"x" * 16), TopicToDelete(None, made.topic_id)]
    )
    assert [(o.error, o.name, o.topic_id) for o in outcomes] == [
        (ErrorCode.UNKNOWN_TOPIC_ID, None, b"x" * 16),
        (ErrorCode.NONE, "t", made.topic_id),
    ]


async def test_a_recreated_topic_has_another_id_and_a_higher_epoch(open_world: Open) -> None:
    world = await open_world()
    first = await create(world, "t", 2)
    await delete(world, "t")
    second = await create(world, "t")
    assert second.topic_id != first.topic_id
    assert epochs(world, "t") == [1]
    await delete(world, "t")
    await world.close()
    again = await open_world()
    await create(again, "t", 2)
    assert epochs(again, "t") == [2, 2]
    await create(again, "other")
    assert epochs(again, "other") == [0]


async def test_a_deletion_is_finished_at_the_next_start(
    open_world: Open, monkeypatch: pytest.MonkeyPatch, events_log: io.StringIO
) -> None:
    world = await open_world()
    await create(world, "t", 3)
    await create(world, "stays")

    real = world.replicas.stop

    def stop_first_only(topic: str, partition: int, delete: bool) -> None:
        if partition > 0:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")
        real(topic, partition, delete)

    monkeypatch.setattr(world.replicas, "stop", stop_first_only)
    assert await delete(world, "t") is ErrorCode.NONE
    assert "deletion not finished" in events_log.getvalue()
    assert world.metadata.topic("t") is None
    assert (await create(world, "t")).error is ErrorCode.TOPIC_ALREADY_EXISTS
    await world.crash()
    again = await open_world()
    assert [topic.name for topic in again.metadata.topics()] == ["stays"]
    assert not any(path.name in ("t-0", "t-1", "t-2") for path in again.folder.iterdir())
    assert await again.store.children("/admin/delete_topics") == []
    assert (await create(again, "t")).error is ErrorCode.NONE
    assert epochs(again, "t") == [1]


async def test_a_deletion_that_cannot_be_begun_leaves_the_topic(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(world, "t")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fdatasync", fail)
    assert await delete(world, "t") is ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert world.metadata.topic("t") is not None
    assert world.replicas.partition("t", 0) is not None


async def extend(world: World, wanted: MorePartitions, validate_only: bool = False) -> tuple[str, str | None]:
    outcome = (await world.controller.create_partitions([wanted], validate_only))[0]
    return outcome.error.name, outcome.message


async def test_more_partitions(open_world: Open) -> None:
    world = await open_world()
    made = await create(world, "t", 2, retention_ms="5")
    assert await extend(world, MorePartitions("t", 5), validate_only=True) == ("NONE", None)
    assert world.replicas.partition("t", 2) is None
    assert await extend(world, MorePartitions("t", 4)) == ("NONE", None)
    assert await extend(world, MorePartitions("t", 5, [[1001]])) == ("NONE", None)
    partition = world.replicas.partition("t", 4)
    assert partition is not None
    assert partition.log.config.retention_ms == 5
    node = json.loads((await world.store.get("/brokers/topics/t"))[0])
    assert sorted(node["partitions"]) == ["0", "1", "2", "3", "4"]
    await world.crash()
    again = await open_world()
    info = again.metadata.topic("t")
    assert info is not None
    assert info.topic_id == made.topic_id
    assert list(info.partitions) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (
            MorePartitions("t", 1),
            "INVALID_PARTITIONS",
            "Topic currently has 2 partitions, which is higher than",
        ),
        (MorePartitions("t", 2), "INVALID_PARTITIONS", "Topic already has 2 partitions."),
        (MorePartitions("u", 2), "UNKNOWN_TOPIC_OR_PARTITION", "The topic 'u' does not exist."),
        (
            MorePartitions("t", 3, []),
            "INVALID_REPLICA_ASSIGNMENT",
            "Increasing the number of partitions by 1 but 0",
        ),
        (
            MorePartitions("t", 3, [[5]]),
            "INVALID_REPLICA_ASSIGNMENT",
            "Unknown broker(s) in replica assignment: 5.",
        ),
        (MorePartitions("t", 3, [[]]), "INVALID_REPLICA_ASSIGNMENT", "Cannot have replication factor of 0"),
    ],
)
async def test_what_cannot_grow(world: World, wanted: MorePartitions, code: str, message: str) -> None:
    await create(world, "t", 2)
    error, text = await extend(world, wanted)
    assert error == code
    assert text is not None
    assert text.startswith(message)


async def test_topics_are_brought_back_as_the_store_has_them(
    open_world: Open, events_log: io.StringIO
) -> None:
    world = await open_world()
    await create(world, "t", 2, retention_ms="5")
    cluster_id = world.metadata.cluster_id
    await world.close()
    (world.folder / "t-1").rename(world.folder / "stray-7")
    again = await open_world()
    assert again.metadata.cluster_id == cluster_id
    info = again.metadata.topic("t")
    assert info is not None
    assert info.log_config.retention_ms == 5
    assert (again.folder / "t-1").is_dir()
    assert (again.folder / "stray-7").is_dir()
    assert again.replicas.partition("stray", 7) is None
    warnings = [line for line in events_log.getvalue().splitlines() if "stray log" in line]
    assert len(warnings) == 1
    assert "stray-7" in warnings[0]


async def test_epochs_rise_after_an_unclean_stop_only(open_world: Open) -> None:
    world = await open_world()
    await create(world, "t", 2)
    await world.close()
    again = await open_world()
    assert epochs(again, "t") == [0, 0]
    await again.crash()
    last = await open_world()
    assert epochs(last, "t") == [1, 1]
    partition = last.replicas.partition("t", 0)
    assert partition is not None
    assert partition.leader_epoch == 1
    assert (await last.store.get("/controller_epoch"))[0] == b"3"
    assert json.loads((await last.store.get("/controller"))[0])["brokerid"] == 1001
    broker = json.loads((await last.store.get("/brokers/ids/1001"))[0])
    assert broker["endpoints"] == ["PLAINTEXT://127.0.0.1:9092"]


async def test_a_store_of_another_cluster_is_a_one_line_error(open_world: Open) -> None:
    world = await open_world()
    await world.close()
    meta = world.folder / "meta.properties"
    meta.write_text(meta.read_text().replace(world.metadata.cluster_id, "A" * 22))
    with pytest.raises(Exception, match=r"the data folder belongs to cluster A+ and its store to cluster"):
        await open_world()


async def test_a_folder_that_has_been_used_before_gives_the_cluster_its_id(open_world: Open) -> None:
    world = await open_world()
    await create(world, "t")
    await world.close()
    (world.folder / "ottla-store.journal").unlink()
    again = await open_world()
    assert again.metadata.cluster_id == world.metadata.cluster_id
    assert again.metadata.topic("t") is None
    assert (again.folder / "t-0").is_dir()


async def test_producer_ids_are_never_given_twice(open_world: Open) -> None:
    world = await open_world()
    taken = [await world.controller.next_producer_id() for _ in range(1500)]
    await world.crash()
    again = await open_world()
    taken += [await again.controller.next_producer_id() for _ in range(10)]
    assert len(set(taken)) == len(taken)
    assert taken[:3] == [0, 1, 2]
    assert taken[-10] == 2000
    block = json.loads((await again.store.get("/latest_producer_id_block"))[0])
    assert block == {"version": 1, "broker": 1001, "block_start": "2000", "block_end": "2999"}


async def test_no_producer_id_without_a_store(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fdatasync", fail)
    with pytest.raises(KafkaError) as caught:
        await world.controller.next_producer_id()
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    monkeypatch.undo()
    assert await world.controller.next_producer_id() == 0


async def test_a_topic_can_be_created_while_another_is_deleted(world: World) -> None:
    await create(world, "t", 100)
    done = await asyncio.gather(
        world.controller.delete_topics([TopicToDelete("t")]),
        world.controller.create_topics([NewTopic("t", 3), NewTopic("u", 3)], validate_only=False),
    )
    assert [outcome.error for outcome in done[1]] == [ErrorCode.NONE, ErrorCode.NONE]
    assert epochs(world, "t") == [1, 1, 1]
