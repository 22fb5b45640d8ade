"""Admin's calls for configs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.client.admin.waiting import eventually

from ottla_client import Admin
from ottla_client.admin import (
    AlterConfig,
    AlterOperation,
    ConfigResource,
    ConfigSource,
    PartialError,
    ResourceType,
)
from ottla_client.errors import BrokerError, UnknownTopicError
from ottla_protocol.errors import ErrorCode


async def test_configs_of_a_topic(admin: Admin, new_topic: Callable[..., str]) -> None:
    topic = ConfigResource.topic(new_topic(retention_ms=5000))
    found = (await admin.describe_configs([topic], include_synonyms=True, include_documentation=True))[topic]
    retention = found["retention.ms"]
    assert (retention.value, retention.source, retention.is_default) == ("5000", ConfigSource.TOPIC, False)
    assert retention.synonyms[0] == ("retention.ms", "5000", ConfigSource.TOPIC)
    assert retention.documentation
    assert found["segment.bytes"].is_default
    assert not found["segment.bytes"].is_sensitive
    only = (await admin.describe_configs([topic], keys=["retention.ms"]))[topic]
    assert list(only) == ["retention.ms"]


async def test_configs_are_changed_one_by_one(admin: Admin, new_topic: Callable[..., str]) -> None:
    topic = ConfigResource.topic(new_topic(retention_ms=5000))

    async def alter(name: str, value: str | None, operation: AlterOperation, **options: bool) -> None:
        await admin.alter_configs({topic: [AlterConfig(name, value, operation)]}, **options)

    async def changed(name: str, wanted: str) -> None:
        async def now() -> str | None:
            return (await admin.describe_configs([topic]))[topic][name].value

        await eventually(now, lambda value: value == wanted)

    await alter("segment.ms", "70000", AlterOperation.SET, validate_only=True)
    await changed("segment.ms", "604800000")
    await alter("segment.ms", "70000", AlterOperation.SET)
    await changed("segment.ms", "70000")
    await alter("cleanup.policy", "compact", AlterOperation.APPEND)
    await changed("cleanup.policy", "delete,compact")
    await alter("cleanup.policy", "delete", AlterOperation.SUBTRACT)
    await changed("cleanup.policy", "compact")
    await alter("segment.ms", None, AlterOperation.DELETE)
    await changed("segment.ms", "604800000")
    assert (await admin.describe_configs([topic]))[topic]["retention.ms"].value == "5000"


async def test_what_can_not_be_is_refused(admin: Admin, new_topic: Callable[..., str]) -> None:
    topic = ConfigResource.topic(new_topic())
    other = ConfigResource.topic(topic.name + "-not")
    with pytest.raises(BrokerError) as caught:
        await admin.alter_configs({topic: [AlterConfig("retention.ms", "soon")]})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(UnknownTopicError):
        await admin.describe_configs([other])
    with pytest.raises(PartialError) as partial:
        await admin.describe_configs([topic, other])
    assert list(partial.value.results) == [topic]
    assert list(partial.value.errors) == [other]


async def test_configs_of_brokers(admin: Admin) -> None:
    node = (await admin.describe_cluster()).nodes[0].id
    broker, every = ConfigResource.broker(node), ConfigResource.broker(None)
    change = "log.index.interval.bytes"
    await admin.alter_configs({every: [AlterConfig(change, "8192")]})

    async def entry(resource: ConfigResource) -> tuple[str | None, ConfigSource] | None:
        found = (await admin.describe_configs([resource]))[resource].get(change)
        return None if found is None else (found.value, found.source)

    await eventually(lambda: entry(every), lambda e: e == ("8192", ConfigSource.DYNAMIC_DEFAULT_BROKER))
    await admin.alter_configs({broker: [AlterConfig(change, "16384")]})
    await eventually(lambda: entry(broker), lambda e: e == ("16384", ConfigSource.DYNAMIC_BROKER))
    assert "listeners" in (await admin.describe_configs([broker]))[broker]
    for resource in (broker, every):
        await admin.alter_configs({resource: [AlterConfig(change, operation=AlterOperation.DELETE)]})


def test_resources_have_names() -> None:
    assert str(ConfigResource.topic("orders")) == "topic orders"
    assert str(ConfigResource.broker(3)) == "broker 3"
    assert str(ConfigResource.broker(None)) == "broker defaults"
    assert ConfigResource(ResourceType.BROKER_LOGGER, "3").node == 3
    assert ConfigResource.broker(None).node is None
