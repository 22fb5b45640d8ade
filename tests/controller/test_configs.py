"""Changed configs act at once."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from tests.controller.test_create import create
from tests.support.world import World

from ottla_broker.controller.api import ConfigChange, ConfigOperation, Outcome, ResourceType
from ottla_broker.store.keys import DEFAULT_ENTITY, ConfigNode

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
Open = Callable[..., Awaitable[World]]


async def alter(world: World, kind: ResourceType, name: str, *changes: ConfigChange) -> Outcome:
    return await world.controller.alter_configs(kind, name, changes, validate_only=False)


async def stored(world: World, path: str) -> dict[str, str]:
    configs: dict[str, str] = json.loads((await world.store.get(path))[0])["config"]
    return configs


async def test_a_topics_config_acts_at_once_and_stays(open_world: Open) -> None:
    world = await open_world()
    await create(world, "t", segment_ms="7")
    outcome = await alter(world, TOPIC, "t", ConfigChange("retention.ms", SET, "5"))
    assert outcome == Outcome()
    partition = world.replicas.partition("t", 0)
    assert partition is not None
    assert (partition.log.config.retention_ms, partition.log.config.segment_ms) == (5, 7)
    assert await stored(world, "/config/topics/t") == {"segment.ms": "7", "retention.ms": "5"}
    await world.crash()
    again = await open_world()
    config = again.metadata.log_config("t")
    assert config is not None
    assert config.retention_ms == 5
    await alter(again, TOPIC, "t", ConfigChange("retention.ms", DELETE, None))
    config = again.metadata.log_config("t")
    assert config is not None
    assert config.retention_ms == 604_800_000


async def test_lists_are_added_to_and_taken_from(world: World) -> None:
    await create(world, "t")

    async def policy(operation: ConfigOperation, value: str) -> str:
        outcome = await alter(world, TOPIC, "t", ConfigChange("cleanup.policy", operation, value))
        assert outcome == Outcome()
        return (await stored(world, "/config/topics/t"))["cleanup.policy"]

    assert await policy(APPEND, "compact") == "delete,compact"
    assert await policy(APPEND, "compact") == "delete,compact"
    assert await policy(SUBTRACT, "delete") == "compact"
    assert await policy(SUBTRACT, "delete") == "compact"
    assert await policy(SET, "delete") == "delete"


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (ConfigChange("no.such", SET, "1"), "INVALID_CONFIG", "Unknown topic config name: no.such"),
        (ConfigChange("no.such", APPEND, "1"), "INVALID_CONFIG", "Unknown config name: no.such"),
        (
            ConfigChange("retention.ms", APPEND, "1"),
            "INVALID_CONFIG",
            "Config value append is not allowed for config key: retention.ms",
        ),
        (
            ConfigChange("retention.ms", SUBTRACT, "1"),
            "INVALID_CONFIG",
            "Config value subtract is not allowed for config key: retention.ms",
        ),
        (
            ConfigChange("retention.ms", SET, "x"),
            "INVALID_CONFIG",
            "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): Invalid value x for"
            " configuration retention.ms: Not a number of type LONG",
        ),
        (
            ConfigChange("remote.storage.enable", SET, "true"),
            "INVALID_CONFIG",
            "remote.storage.enable=true is not supported: Tiered storage is not built yet.",
        ),
    ],
)
async def test_a_bad_change_changes_nothing(
    world: World, change: ConfigChange, code: str, message: str
) -> None:
    await create(world, "t", retention_ms="9")
    outcome = await alter(world, TOPIC, "t", ConfigChange("segment.ms", SET, "5"), change)
    assert (outcome.error.name, outcome.message) == (code, message)
    assert await stored(world, "/config/topics/t") == {"retention.ms": "9"}


async def test_validating_changes_nothing(world: World) -> None:
    await create(world, "t")
    change = ConfigChange("retention.ms", SET, "5")
    assert await world.controller.alter_configs(TOPIC, "t", [change], validate_only=True) == Outcome()
    assert await world.controller.replace_configs(TOPIC, "t", {"retention.ms": "5"}, True) == Outcome()
    assert await stored(world, "/config/topics/t") == {}


async def test_replacing_forgets_what_is_not_named(world: World) -> None:
    await create(world, "t", retention_ms="5", segment_ms="6")
    assert await world.controller.replace_configs(TOPIC, "t", {"segment.ms": "7"}, False) == Outcome()
    assert await stored(world, "/config/topics/t") == {"segment.ms": "7"}
    config = world.metadata.log_config("t")
    assert config is not None
    assert (config.retention_ms, config.segment_ms) == (604_800_000, 7)


async def test_configs_of_a_missing_topic(world: World) -> None:
    change = ConfigChange("retention.ms", SET, "5")
    outcome = await alter(world, TOPIC, "t", change)
    assert (outcome.error.name, outcome.message) == (
        "UNKNOWN_TOPIC_OR_PARTITION",
        "The topic 't' does not exist.",
    )
    outcome = await alter(world, TOPIC, "", change)
    assert (outcome.error.name, outcome.message) == (
        "INVALID_REQUEST",
        "Default topic resources are not allowed.",
    )


async def test_a_brokers_config_acts_on_topics_that_do_not_have_their_own(open_world: Open) -> None:
    world = await open_world(log_retention_hours="1")
    await create(world, "own", retention_ms="5")
    await create(world, "default")
    heard: list[int] = []
    world.controller.on_broker_configs.append(lambda: heard.append(1))

    def retention(current: World, topic: str) -> int:
        partition = current.replicas.partition(topic, 0)
        assert partition is not None
        return partition.log.config.retention_ms

    assert retention(world, "default") == 3_600_000
    assert await alter(world, BROKER, "", ConfigChange("log.retention.ms", SET, "7")) == Outcome()
    assert (retention(world, "default"), retention(world, "own")) == (7, 5)
    assert await alter(world, BROKER, "1001", ConfigChange("log.retention.ms", SET, "8")) == Outcome()
    assert retention(world, "default") == 8
    assert await stored(world, "/config/brokers/<default>") == {"log.retention.ms": "7"}
    assert await stored(world, "/config/brokers/1001") == {"log.retention.ms": "8"}
    assert len(heard) == 2
    await world.crash()
    again = await open_world(log_retention_hours="1")
    assert retention(again, "default") == 8
    await alter(again, BROKER, "1001", ConfigChange("log.retention.ms", DELETE, None))
    await alter(again, BROKER, "", ConfigChange("log.retention.ms", DELETE, None))
    assert retention(again, "default") == 3_600_000
    assert (await create(again, "later")).error.name == "NONE"
    assert retention(again, "later") == 3_600_000


@pytest.mark.parametrize(
    ("name", "change", "code", "message"),
    [
        (
            "7",
            ("log.retention.ms", "5"),
            "INVALID_REQUEST",
            "Unexpected broker id, expected 1001, but received 7",
        ),
        ("x", ("log.retention.ms", "5"), "INVALID_REQUEST", "Node id must be an integer, but it is: x"),
        (
            "1001",
            ("num.partitions", "5"),
            "INVALID_REQUEST",
            "Cannot update these configs dynamically: num.partitions",
        ),
        ("", ("no.such", "5"), "INVALID_REQUEST", "Unknown broker config name: no.such"),
        (
            "",
            ("message.max.bytes", "x"),
            "INVALID_REQUEST",
            "Invalid value x for configuration message.max.bytes: Not a number of type INT",
        ),
        (
            "",
            ("log.retention.ms", "0"),
            "INVALID_REQUEST",
            "Invalid value 0 for configuration log.retention.ms",
        ),
        (
            "",
            ("ssl.keystore.location", "/a.pem"),
            "INVALID_REQUEST",
            "Cannot update these configs at default cluster level, broker id must be specified: ssl.keystore.location",
        ),
        (
            "",
            ("listener.name.a.ssl.truststore.type", "PEM"),
            "INVALID_REQUEST",
            "Cannot update these configs at default cluster level, broker id must be specified: listener.name.a.ssl",
        ),
        (
            "",
            ("max.connections", "0"),
            "INVALID_REQUEST",
            "Invalid value 0 for configuration max.connections",
        ),
        (
            "",
            ("max.connections.per.ip", "0"),
            "INVALID_REQUEST",
            "Invalid value 0 for configuration max.connections.per.ip",
        ),
        (
            "1001",
            ("max.connections.per.ip", "0"),
            "INVALID_REQUEST",
            "Invalid value 0 for configuration max.connections.per.ip",
        ),
        (
            "1001",
            ("listener.name.plaintext.max.connection.creation.rate", "0"),
            "INVALID_REQUEST",
            "Invalid value 0 for configuration listener.name.plaintext.max.connection.creation.rate",
        ),
    ],
)
async def test_configs_that_a_broker_refuses(
    world: World, name: str, change: tuple[str, str], code: str, message: str
) -> None:
    outcome = await alter(world, BROKER, name, ConfigChange(change[0], SET, change[1]))
    assert outcome.error.name == code
    assert outcome.message is not None
    assert outcome.message.startswith(message)
    assert await world.store.children("/config/brokers") == []


async def test_stored_settings_that_are_not_valid_are_ignored(open_world: Open) -> None:
    """A version before this one accepted them."""
    world = await open_world()
    await create(world, "t", 1)
    settings = {"compression.gzip.level": "0", "retention.ms": "5"}
    for kind, name in ((ConfigNode.TOPICS, "t"), (ConfigNode.BROKERS, DEFAULT_ENTITY)):
        path, data = ConfigNode.path(kind, name), ConfigNode.encode(settings)
        if await world.store.exists(path):
            await world.store.set(path, data)
        else:
            await world.store.create(path, data)
    await world.close()
    world = await open_world()
    topic = world.metadata.topic("t")
    assert topic is not None
    assert topic.configs == {"retention.ms": "5"}
    assert world.config.compression_gzip_level == -1
