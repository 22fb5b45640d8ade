"""Topics that are created, and those that can't be."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.world import World

from ottla_broker.controller.api import ZERO_ID, CreatedTopic, NewTopic
from ottla_broker.controller.validation import Collisions
from ottla_broker.store.keys import decode_uuid
from ottla_protocol.errors import ErrorCode, KafkaError


async def create(world: World, name: str, partitions: int = 1, **configs: str) -> CreatedTopic:
    settings: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
    topic = NewTopic(name, partitions, configs=settings)
    return (await world.controller.create_topics([topic], validate_only=False))[0]


def test_a_collision_names_a_few_topics_only() -> None:
    collisions = Collisions(f"{number:012b}".replace("0", ".").replace("1", "_") for number in range(4096))
    with pytest.raises(KafkaError, match="and 4091 more") as caught:
        collisions.check("_" * 12)
    assert len(str(caught.value)) < 200


async def test_a_new_topic_is_known_led_and_stored(world: World) -> None:
    outcome = await create(world, "t", 3, retention_ms="5", cleanup_policy="compact")
    assert outcome.error is ErrorCode.NONE
    assert (outcome.num_partitions, outcome.replication_factor) == (3, 1)
    info = world.metadata.topic("t")
    assert info is not None
    assert info is world.metadata.topic_by_id(outcome.topic_id)
    assert [(p.index, p.leader, p.leader_epoch, list(p.isr)) for p in info.partitions.values()] == [
        (i, 1001, 0, [1001]) for i in range(3)
    ]
    for index in range(3):
        partition = world.replicas.partition("t", index)
        assert partition is not None
        assert partition.log.config.retention_ms == 5
        assert partition.log.config.compact
        assert (world.folder / f"t-{index}").is_dir()
    node = json.loads((await world.store.get("/brokers/topics/t"))[0])
    assert node["partitions"] == {str(i): [1001] for i in range(3)}
    assert decode_uuid(node["topic_id"]) == outcome.topic_id
    state = json.loads((await world.store.get("/brokers/topics/t/partitions/2/state"))[0])
    assert state == {"controller_epoch": 1, "leader": 1001, "version": 1, "leader_epoch": 0, "isr": [1001]}
    configs = json.loads((await world.store.get("/config/topics/t"))[0])
    assert configs == {"version": 1, "config": {"retention.ms": "5", "cleanup.policy": "compact"}}


async def test_open_numbers_get_the_brokers_defaults(
    open_world: Callable[..., Awaitable[World]],
) -> None:
    world = await open_world(num_partitions="4")
    outcome = await create(world, "t", -1)
    assert (outcome.num_partitions, outcome.replication_factor) == (4, 1)


async def test_more_replicas_than_brokers_by_default(open_world: Callable[..., Awaitable[World]]) -> None:
    world = await open_world(default_replication_factor="3")
    outcome = await create(world, "t")
    assert outcome.error is ErrorCode.INVALID_REPLICATION_FACTOR


async def test_assignments_by_hand(world: World) -> None:
    topic = NewTopic("t", assignments={1: [1001], 0: [1001]})
    outcome = (await world.controller.create_topics([topic], validate_only=False))[0]
    assert (outcome.error, outcome.num_partitions) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (NewTopic(""), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the empty string is not allowed"),
        (NewTopic("."), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: '.' is not allowed"),
        (NewTopic(".."), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: '..' is not allowed"),
        (
            NewTopic("a b"),
            "INVALID_TOPIC_EXCEPTION",
            "Topic name is invalid: 'a b' contains one or more characters",
        ),
        (
            NewTopic("ä"),
            "INVALID_TOPIC_EXCEPTION",
            "Topic name is invalid: 'ä' contains one or more characters",
        ),
        (
            NewTopic("a\n"),
            "INVALID_TOPIC_EXCEPTION",
            "Topic name is invalid: 'a\n' contains one or more characters",
        ),
        (NewTopic("x" * 250), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the length of 'x"),
        (NewTopic("there"), "TOPIC_ALREADY_EXISTS", "Topic 'there' already exists."),
        (
            NewTopic("da.sh_ed"),
            "INVALID_TOPIC_EXCEPTION",
            "Topic 'da.sh_ed' collides with existing topics: da_sh.ed",
        ),
        (NewTopic("t", 0), "INVALID_PARTITIONS", "Number of partitions must be larger than 0."),
        (NewTopic("t", -5), "INVALID_PARTITIONS", "Number of partitions must be larger than 0."),
        (NewTopic("t", 1, 0), "INVALID_REPLICATION_FACTOR", "Replication factor must be larger than 0."),
        (
            NewTopic("t", 1, 3),
            "INVALID_REPLICATION_FACTOR",
            "Replication factor: 3 larger than available brokers: 1.",
        ),
        (NewTopic("t", 1, -1, {0: [1001]}), "INVALID_REQUEST", "Both numPartitions or replicationFactor and"),
        (
            NewTopic("t", assignments={1: [1001]}),
            "INVALID_REPLICA_ASSIGNMENT",
            "partitions should be a consecutive",
        ),
        (
            NewTopic("t", assignments={0: []}),
            "INVALID_REPLICA_ASSIGNMENT",
            "Cannot have replication factor of 0",
        ),
        (
            NewTopic("t", assignments={0: [7]}),
            "INVALID_REPLICA_ASSIGNMENT",
            "Unknown broker(s) in replica assignment",
        ),
        (
            NewTopic("t", assignments={0: [1001, 1001]}),
            "INVALID_REPLICA_ASSIGNMENT",
            "Duplicate brokers not allowed",
        ),
        (
            NewTopic("t", assignments={0: [1001], 1: []}),
            "INVALID_REPLICA_ASSIGNMENT",
            "Cannot have replication factor of 0",
        ),
        (NewTopic("t", configs={"no.such": "1"}), "INVALID_CONFIG", "Unknown topic config name: no.such"),
        (
            NewTopic("t", configs={"retention.ms": "x"}),
            "INVALID_CONFIG",
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            NewTopic("t", configs={"a": None, "b": None}),
            "INVALID_CONFIG",
            "Null value not supported for topic configs: a,b",
        ),
        (
            NewTopic("__cluster_metadata"),
            "INVALID_REQUEST",
            "Creation of internal topic __cluster_metadata is",
        ),
    ],
)
async def test_what_cannot_be_created(world: World, topic: NewTopic, code: str, message: str) -> None:
    await create(world, "there")
    await create(world, "da_sh.ed")
    before = await world.store.children("/brokers/topics")
    for validate_only in (True, False):
        outcome = (await world.controller.create_topics([topic], validate_only))[0]
        assert outcome.error.name == code
        assert outcome.message is not None
        assert outcome.message.startswith(message)
    assert await world.store.children("/brokers/topics") == before


async def test_an_invalid_topic_does_not_affect_the_others(world: World) -> None:
    topics = [NewTopic("a"), NewTopic("b c"), NewTopic("a"), NewTopic("x.y"), NewTopic("x_y"), NewTopic("d")]
    outcomes = await world.controller.create_topics(topics, validate_only=False)
    assert [outcome.error.name for outcome in outcomes] == [
        "NONE",
        "INVALID_TOPIC_EXCEPTION",
        "TOPIC_ALREADY_EXISTS",
        "NONE",
        "INVALID_TOPIC_EXCEPTION",
        "NONE",
    ]
    assert [topic.name for topic in world.metadata.topics()] == ["a", "x.y", "d"]


async def test_validating_creates_nothing(world: World) -> None:
    outcome = (await world.controller.create_topics([NewTopic("t", 2)], validate_only=True))[0]
    assert (outcome.error, outcome.num_partitions, outcome.topic_id) == (ErrorCode.NONE, 2, ZERO_ID)
    assert world.metadata.topic("t") is None
    assert not (world.folder / "t-0").exists()


async def test_one_of_many_concurrent_creations_wins(world: World) -> None:
    outcomes = await asyncio.gather(*(create(world, "t") for _ in range(10)))
    codes = [outcome.error for outcome in outcomes]
    assert codes.count(ErrorCode.NONE) == 1
    assert codes.count(ErrorCode.TOPIC_ALREADY_EXISTS) == 9


async def test_creating_many_partitions_yields_to_the_event_loop(world: World) -> None:
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    outcome = await create(world, "t", 500)
    ticking.cancel()
    assert outcome.num_partitions == 500
    assert turns > 5


async def test_ensuring_a_topic(world: World) -> None:
    infos = await asyncio.gather(*(world.controller.ensure_topic("t") for _ in range(5)))
    assert all(info is infos[0] for info in infos)
    with pytest.raises(KafkaError) as caught:
        await world.controller.ensure_topic("a b")
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_the_offsets_topic_is_compacted(open_world: Callable[..., Awaitable[World]]) -> None:
    world = await open_world(offsets_topic_num_partitions="3", offsets_topic_segment_bytes="5000")
    info = await world.controller.ensure_topic("__consumer_offsets")
    assert info.internal
    assert len(info.partitions) == 3
    assert (info.log_config.compact, info.log_config.delete) == (True, False)
    assert info.log_config.segment_bytes == 5000


async def test_the_transaction_topic_is_compacted_and_never_compressed(world: World) -> None:
    info = await world.controller.ensure_topic("__transaction_state")
    assert info.internal
    assert len(info.partitions) == 50
    assert (info.log_config.compact, info.log_config.delete) == (True, False)
    assert info.log_config.compression_type == "uncompressed"
    assert info.log_config.min_insync_replicas == 2


async def test_a_topic_is_not_created_when_the_store_is_full(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fdatasync", fail)
    outcome = await create(world, "t")
    monkeypatch.undo()
    assert outcome.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "No space left" in (outcome.message or "")
    assert world.metadata.topic("t") is None
    assert (await create(world, "t")).error is ErrorCode.NONE


async def test_a_topic_whose_folders_cannot_be_created_is_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = world.logs.files.make_folder

    def fail(path: str) -> None:
        if path.endswith("-1"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path)

    monkeypatch.setattr(world.logs.files, "make_folder", fail)
    outcome = await create(world, "t", 3)
    monkeypatch.undo()
    assert outcome.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.metadata.topic("t") is None
    assert world.replicas.partition("t", 0) is None
    assert await world.store.children("/brokers/topics") == []
    assert (await create(world, "t", 3)).error is ErrorCode.NONE
