"""The requests that create and change topics and configs, in all versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.controller.test_create import create
from tests.support.world import World

from ottla_broker.controller.api import ZERO_ID
from ottla_broker.handlers import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
)
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import alter_configs as alter
from ottla_protocol.messages import incremental_alter_configs as incremental
from ottla_protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from ottla_protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

Open = Callable[..., Awaitable[World]]


def names(answers: list[object]) -> list[str]:
    return [ErrorCode(answer.error_code).name for answer in answers]  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", range(8))
async def test_create_topics(world: World, version: int) -> None:
    topics = [
        CreatableTopic(
            name="a",
            num_partitions=2,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value="5")],
        ),
        CreatableTopic(
            name="b",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1001])],
        ),
        CreatableTopic(name="twice", num_partitions=1, replication_factor=1),
        CreatableTopic(name="twice", num_partitions=2, replication_factor=1),
        CreatableTopic(name="bad name", num_partitions=1, replication_factor=1),
        CreatableTopic(
            name="c",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1001])] * 2,
        ),
        CreatableTopic(
            name="d",
            num_partitions=1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1001])] * 2,
        ),
    ]
    answer = await world.call(create_topics, CreateTopicsRequest(topics=topics), version)
    assert [topic.name for topic in answer.topics] == ["a", "b", "twice", "bad name", "c", "d"]
    assert names(answer.topics[:4]) == ["NONE", "NONE", "INVALID_REQUEST", "INVALID_TOPIC_EXCEPTION"]
    assert names(answer.topics[4:]) == ["INVALID_REPLICA_ASSIGNMENT", "INVALID_REQUEST"]
    if version >= 1:
        assert (answer.topics[4].error_message or "").endswith("for partition 0")
        assert answer.topics[0].error_message is None
        assert answer.topics[2].error_message == "Found multiple entries for this topic."
    if version >= 5:
        assert [topic.num_partitions for topic in answer.topics] == [2, 1, -1, -1, -1, -1]
        configs = {config.name: config for config in answer.topics[0].configs}
        assert len(configs) == 36
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
        assert configs["segment.bytes"].config_source == 5
        assert answer.topics[3].configs == []
    if version >= 7:
        info = world.metadata.topic("a")
        assert info is not None
        assert answer.topics[0].topic_id == info.topic_id


async def test_create_topics_validate_only(world: World) -> None:
    topics = [CreatableTopic(name="a", num_partitions=2, replication_factor=1)]
    request = CreateTopicsRequest(topics=topics, validate_only=True)
    answer = await world.call(create_topics, request, 7)
    assert (answer.topics[0].error_code, answer.topics[0].topic_id) == (0, ZERO_ID)
    assert answer.topics[0].num_partitions == 2
    assert world.metadata.topic("a") is None


@pytest.mark.parametrize("version", range(7))
async def test_delete_topics(world: World, version: int) -> None:
    for name in ("a", "b"):
        await create(world, name)
    wanted = ["a", "missing", "b", "b"]
    request = (
        DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in wanted])
        if version >= 6
        else DeleteTopicsRequest(topic_names=wanted)
    )
    answer = await world.call(delete_topics, request, version)
    assert sorted((result.name, ErrorCode(result.error_code).name) for result in answer.responses) == [
        ("a", "NONE"),
        ("b", "INVALID_REQUEST"),
        ("b", "INVALID_REQUEST"),
        ("missing", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert [topic.name for topic in world.metadata.topics()] == ["b"]


async def test_delete_topics_by_id(world: World) -> None:
    ids = {name: (await create(world, name)).topic_id for name in ("a", "b", "c")}
    wanted = [
        DeleteTopicState(name=None, topic_id=ids["a"]),
        DeleteTopicState(name=None, topic_id=b"x" * 16),
        DeleteTopicState(name="b", topic_id=ids["b"]),
        DeleteTopicState(name=None),
        DeleteTopicState(name="c"),
        DeleteTopicState(name=None, topic_id=ids["c"]),
    ]
    answer = await world.call(delete_topics, DeleteTopicsRequest(topics=wanted), 6)
    found = {(r.name, r.topic_id): ErrorCode(r.error_code).name for r in answer.responses}
    assert found == {
        ("a", ids["a"]): "NONE",
        (None, b"x" * 16): "UNKNOWN_TOPIC_ID",
        ("b", ids["b"]): "INVALID_REQUEST",
        (None, ZERO_ID): "INVALID_REQUEST",
        ("c", ZERO_ID): "INVALID_REQUEST",
        (None, ids["c"]): "INVALID_REQUEST",
    }


@pytest.mark.parametrize("version", range(7))
async def test_deletion_switched_off(open_world: Open, version: int) -> None:
    world = await open_world(delete_topic_enable="false")
    await create(world, "a")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], topic_names=["a"])
    if version < 6:
        request.topics = []
    answer = await world.call(delete_topics, request, version)
    assert names(answer.responses) == ["INVALID_REQUEST" if version < 3 else "TOPIC_DELETION_DISABLED"]
    assert world.metadata.topic("a") is not None


@pytest.mark.parametrize("version", range(4))
async def test_create_partitions(world: World, version: int) -> None:
    for name in ("a", "b", "c"):
        await create(world, name)
    topics = [
        CreatePartitionsTopic(name="a", count=3, assignments=None),
        CreatePartitionsTopic(name="b", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[1001])]),
        CreatePartitionsTopic(name="c", count=1, assignments=None),
        CreatePartitionsTopic(name="d", count=1, assignments=None),
        CreatePartitionsTopic(name="e", count=1, assignments=None),
        CreatePartitionsTopic(name="e", count=2, assignments=None),
    ]
    request = CreatePartitionsRequest(topics=topics, validate_only=True)
    for validate_only in (True, False):
        request.validate_only = validate_only
        answer = await world.call(create_partitions, request, version)
        assert [(r.name, ErrorCode(r.error_code).name) for r in answer.results] == [
            ("a", "NONE"),
            ("b", "NONE"),
            ("c", "INVALID_PARTITIONS"),
            ("d", "UNKNOWN_TOPIC_OR_PARTITION"),
            ("e", "INVALID_REQUEST"),
        ]
    assert world.replicas.partition("a", 2) is not None


async def describe(
    world: World, version: int, kind: int, name: str, keys: list[str] | None = None
) -> tuple[str, str | None, dict[str, DescribeConfigsResourceResult]]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource])
    if version >= 1:
        request.include_synonyms = True
    if version >= 3:
        request.include_documentation = True
    answer = await world.call(describe_configs, request, version)
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    configs = {config.name: config for config in result.configs}
    return ErrorCode(result.error_code).name, result.error_message, configs


@pytest.mark.parametrize("version", range(5))
async def test_describe_a_topic(world: World, version: int) -> None:
    await create(world, "t", retention_ms="5")
    error, message, configs = await describe(world, version, 2, "t")
    assert (error, message, len(configs)) == ("NONE", "", 36)
    own, default = configs["retention.ms"], configs["max.message.bytes"]
    assert (own.value, default.value) == ("5", "1048588")
    assert not own.read_only
    if version == 0:
        assert (own.is_default, default.is_default) == (False, True)
    else:
        assert (own.config_source, default.config_source) == (1, 5)
        assert [s.name for s in default.synonyms] == ["message.max.bytes"]
    if version >= 3:
        assert (own.config_type, configs["cleanup.policy"].config_type) == (5, 7)
        assert own.documentation
    _, _, configs = await describe(world, version, 2, "t", ["retention.ms", "no.such"])
    assert list(configs) == ["retention.ms"]
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=2, resource_name="t", configuration_keys=["retention.ms", "retention.ms"]
            )
        ]
    )
    (twice,) = (await world.call(describe_configs, request, version)).results
    assert [config.name for config in twice.configs] == ["retention.ms"]
    _, _, configs = await describe(world, version, 2, "t", [])
    assert len(configs) == 36


@pytest.mark.parametrize("version", range(5))
async def test_describe_a_broker(world: World, version: int) -> None:
    error, _, configs = await describe(world, version, 4, "1001")
    assert error == "NONE"
    assert configs["log.dirs"].value == str(world.folder)
    assert configs["log.dirs"].read_only
    assert (await describe(world, version, 4, ""))[2] == {}


@pytest.mark.parametrize(
    ("kind", "name", "error", "message"),
    [
        (2, "missing", "UNKNOWN_TOPIC_OR_PARTITION", ""),
        (2, "", "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the empty string is not allowed"),
        (4, "7", "INVALID_REQUEST", "Unexpected broker id, expected 1001 or empty string, but received 7"),
        (4, "x", "INVALID_REQUEST", "Broker id must be an integer, but it is: x"),
        (8, "1001", "INVALID_REQUEST", "Configs of type BROKER_LOGGER are not supported by this broker."),
        (9, "x", "INVALID_REQUEST", "Unsupported resource type: 9"),
    ],
)
async def test_what_cannot_be_described(
    world: World, kind: int, name: str, error: str, message: str | None
) -> None:
    assert await describe(world, 4, kind, name) == (error, message, {})


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs(world: World, version: int) -> None:
    await create(world, "t", retention_ms="5")

    def resource(kind: int, name: str, *configs: tuple[str, str | None]) -> alter.AlterConfigsResource:
        entries = [alter.AlterableConfig(name=key, value=value) for key, value in configs]
        return alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)

    resources = [
        resource(2, "t", ("segment.ms", "7")),
        resource(2, "missing", ("segment.ms", "7")),
        resource(4, "1001", ("message.max.bytes", "99")),
        resource(4, "", ("message.max.bytes", None)),
        resource(8, "1001", ("root", "DEBUG")),
        resource(77, "1001"),
        resource(0, "1001"),
        resource(32, "g", ("share.session.timeout.ms", "50000")),
        resource(2, "u", ("segment.ms", "7"), ("segment.ms", "8")),
        resource(2, "twice"),
        resource(2, "twice"),
    ]
    answer = await world.call(alter_configs, alter.AlterConfigsRequest(resources=resources), version)
    assert [(ErrorCode(r.error_code).name, r.error_message) for r in answer.responses] == [
        ("NONE", None),
        ("UNKNOWN_TOPIC_OR_PARTITION", "The topic 'missing' does not exist."),
        ("NONE", None),
        ("INVALID_REQUEST", "Null value not supported for : message.max.bytes"),
        ("INVALID_REQUEST", "Configs of type BROKER_LOGGER can't be changed on this broker."),
        ("INVALID_REQUEST", "Unknown resource type 77"),
        ("INVALID_REQUEST", "Unknown resource type 0"),
        ("INVALID_REQUEST", "Unknown resource type 32"),
        ("INVALID_REQUEST", "Error due to duplicate config keys"),
        ("INVALID_REQUEST", "Each resource must appear at most once."),
        ("INVALID_REQUEST", "Each resource must appear at most once."),
    ]
    config = world.metadata.log_config("t")
    assert config is not None
    assert (config.segment_ms, config.retention_ms, config.max_message_bytes) == (7, 604_800_000, 99)


@pytest.mark.parametrize("version", range(2))
async def test_incremental_alter_configs(world: World, version: int) -> None:
    await create(world, "t", retention_ms="5")

    def resource(
        kind: int, name: str, *configs: tuple[str, int, str | None]
    ) -> incremental.AlterConfigsResource:
        entries = [
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in configs
        ]
        return incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)

    resources = [
        resource(2, "t", ("segment.ms", 0, "7"), ("cleanup.policy", 2, "compact"), ("retention.ms", 1, None)),
        resource(4, "", ("message.max.bytes", 0, "99")),
        resource(2, "u", ("segment.ms", 0, None)),
        resource(2, "v", ("segment.ms", 9, "1")),
        resource(4, "7", ("no.such.config", 2, "1")),
        resource(8, "1001", ("root", 0, "DEBUG")),
    ]
    request = incremental.IncrementalAlterConfigsRequest(resources=resources)
    answer = await world.call(incremental_alter_configs, request, version)
    assert [(ErrorCode(r.error_code).name, r.error_message) for r in answer.responses] == [
        ("NONE", None),
        ("NONE", None),
        ("INVALID_REQUEST", "Null value not supported for : segment.ms"),
        ("INVALID_REQUEST", "Unknown operations type 9"),
        ("INVALID_REQUEST", "Unexpected broker id, expected 1001, but received 7"),
        ("INVALID_REQUEST", "Configs of type BROKER_LOGGER can't be changed on this broker."),
    ]
    config = world.metadata.log_config("t")
    assert config is not None
    assert (config.segment_ms, config.retention_ms, config.max_message_bytes) == (7, 604_800_000, 99)
    assert (config.compact, config.delete) == (True, True)


@pytest.mark.parametrize("version", range(5))
async def test_log_dirs(open_world: Open, version: int) -> None:
    world = await open_world()
    await create(world, "a", 2)
    await create(world, "b")
    await world.close()
    (world.folder / "b-0" / "00000000000000000000.log").write_bytes(b"")
    (world.folder / "stray-0").mkdir()
    world = await open_world()
    answer = await world.call(describe_log_dirs, DescribeLogDirsRequest(topics=None), version)
    (result,) = answer.results
    assert (result.error_code, result.log_dir) == (0, str(world.folder))
    found = {
        (topic.name, p.partition_index): (p.partition_size, p.offset_lag)
        for topic in result.topics
        for p in topic.partitions
    }
    assert found == {("a", 0): (0, 0), ("a", 1): (0, 0), ("b", 0): (0, 0), ("stray", 0): (0, -1)}
    if version >= 4:
        assert result.total_bytes >= result.usable_bytes > 0
    wanted = [DescribableLogDirTopic(topic="a", partitions=[1, 7]), DescribableLogDirTopic(topic="no")]
    answer = await world.call(describe_log_dirs, DescribeLogDirsRequest(topics=wanted), version)
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in answer.results[0].topics] == [
        ("a", [1])
    ]
