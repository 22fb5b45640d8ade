"""When a broker that has just started knows the cluster, so that it may tell clients of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.cluster import control as control_module
from ottla_broker.cluster.control import Control
from ottla_broker.metadata.authority import Authority
from ottla_broker.metadata.cache import MetadataCache
from ottla_protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TOPIC_ID = bytes(range(16))


class Configs:
    """What ``ClusterConfigs`` knows of topics."""

    def __init__(self, has_topics: bool) -> None:
        self.has_topics = has_topics

    async def know(self, topics: Any) -> None: ...

    def topic(self, name: str) -> dict[str, str]:
        return {}


def make(has_topics: bool) -> tuple[Control, MetadataCache]:
    authority, metadata = Authority(), MetadataCache()
    authority.broker_epoch = 1
    configs: Any = Configs(has_topics)
    replicas: Any = SimpleNamespace()
    config: Any = SimpleNamespace()
    return Control(authority, metadata, replicas, configs, lambda _: config, lambda *_: None), metadata


def tell(topics: int) -> UpdateMetadataRequest:
    endpoint = UpdateMetadataEndpoint(port=9092, host="localhost", listener="PLAINTEXT", security_protocol=0)
    state = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=1, leader_epoch=0, isr=[1], zk_version=0, replicas=[1]
    )
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=1,
        topic_states=[
            UpdateMetadataTopicState(topic_name=f"topic{n}", topic_id=TOPIC_ID, partition_states=[state])
            for n in range(topics)
        ],
        live_brokers=[UpdateMetadataBroker(id=1, endpoints=[endpoint])],
    )


async def test_where_there_are_topics_they_have_to_be_told() -> None:
    """A controller that has just been elected tells who is alive, elects leaders, and tells of topics then.

    However long that takes: librdkafka doesn't recover from an answer without its topic.
    """
    control, metadata = make(has_topics=True)
    await control.update_metadata(tell(0))
    assert list(metadata.brokers) == [1]
    # Longer than ZooKeeper takes on a machine that has much to do.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await control.joined.wait()
    await control.update_metadata(tell(2))
    assert control.joined.is_set()
    assert {topic.name for topic in metadata.topics()} == {"topic0", "topic1"}


async def test_where_there_are_no_topics_the_brokers_are_all() -> None:
    control, _ = make(has_topics=False)
    await control.update_metadata(tell(0))
    assert control.joined.is_set()


async def test_settings_of_topics_that_are_gone_are_waited_for_no_longer_than_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_module, "_NO_TOPICS_SECONDS", 0.01)
    control, _ = make(has_topics=True)
    await control.update_metadata(tell(0))
    async with asyncio.timeout(20):
        await control.joined.wait()
