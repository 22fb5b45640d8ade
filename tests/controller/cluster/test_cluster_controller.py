"""``ClusterController`` on the controller and on other brokers."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.fakebrokers import Candidate, FakeCluster
from tests.support.waiting import until

from ottla_broker.controller.api import (
    ConfigChange,
    ConfigOperation,
    MorePartitions,
    NewTopic,
    ResourceType,
    TopicToDelete,
)
from ottla_broker.controller.cluster import cluster_controller
from ottla_broker.store.keys import ConfigNode, TopicNode
from ottla_protocol.errors import ErrorCode, KafkaError


async def two(cluster: FakeCluster, **settings: str) -> tuple[Candidate, Candidate]:
    """The controller, and a broker that is not."""
    controller = await cluster.three(**settings)
    other = await cluster.controller(2, **settings)
    await until(lambda: other.known_controllers == [1])
    return controller, other


async def test_brokers_that_are_not_the_controller_refuse(cluster: FakeCluster) -> None:
    _, other = await two(cluster)
    outcomes = [
        *await other.api.create_topics([NewTopic("t", 1, 1)], False),
        *await other.api.delete_topics([TopicToDelete("t")]),
        *await other.api.create_partitions([MorePartitions("t", 2)], False),
    ]
    assert [outcome.error for outcome in outcomes] == [ErrorCode.NOT_CONTROLLER] * 3
    assert await cluster.store.children(TopicNode.PARENT) == []


async def test_a_topic_is_created_once_for_all_first_users(cluster: FakeCluster) -> None:
    controller, other = await two(cluster, num_partitions="3", default_replication_factor="2")
    found = await asyncio.gather(
        *(other.api.ensure_topic("t") for _ in range(5)),
        *(controller.api.ensure_topic("t") for _ in range(5)),
    )
    assert {topic.name for topic in found} == {"t"}
    assert all(len(topic.partitions) == 3 for topic in found)
    assert all(partition.leader >= 0 for topic in found for partition in topic.partitions.values())
    assert len((await cluster.state("t", 0)).isr) == 2


async def test_the_offsets_topic_has_its_own_settings(cluster: FakeCluster) -> None:
    _, other = await two(cluster, offsets_topic_num_partitions="4", offsets_topic_replication_factor="3")
    found = await other.api.ensure_topic("__consumer_offsets")
    assert len(found.partitions) == 4
    data, _ = await cluster.store.get(ConfigNode.path("topics", "__consumer_offsets"))
    assert ConfigNode.decode("", data)["cleanup.policy"] == "compact"
    assert len((await cluster.state("__consumer_offsets", 0)).isr) == 3


async def test_the_transaction_topic_has_its_own_settings(cluster: FakeCluster) -> None:
    _, other = await two(
        cluster, transaction_state_log_num_partitions="4", transaction_state_log_segment_bytes="50000"
    )
    found = await other.api.ensure_topic("__transaction_state")
    assert len(found.partitions) == 4
    data, _ = await cluster.store.get(ConfigNode.path("topics", "__transaction_state"))
    assert ConfigNode.decode("", data) == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "50000",
        "unclean.leader.election.enable": "false",
    }
    assert len((await cluster.state("__transaction_state", 0)).isr) == 3


async def test_a_topic_that_cannot_be_created_is_an_error(cluster: FakeCluster) -> None:
    _, other = await two(
        cluster, offsets_topic_replication_factor="4", transaction_state_log_replication_factor="4"
    )
    for name, error in (
        ("x/y", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__consumer_offsets", ErrorCode.INVALID_REPLICATION_FACTOR),
        ("__transaction_state", ErrorCode.INVALID_REPLICATION_FACTOR),
    ):
        with pytest.raises(KafkaError) as caught:
            await other.api.ensure_topic(name)
        assert caught.value.code == error


async def test_creation_is_requested_until_a_controller_exists(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, other = await two(cluster)
    active, controller.active = controller.active, None
    asking = asyncio.ensure_future(other.api.ensure_topic("t"))
    await asyncio.sleep(0.3)
    assert not asking.done()
    controller.active = active
    assert (await asking).name == "t"
    # But not for ever.
    monkeypatch.setattr(cluster_controller, "ENSURE_SECONDS", 0.3)
    controller.active = None
    with pytest.raises(KafkaError) as caught:
        await other.api.ensure_topic("u")
    assert caught.value.code == ErrorCode.NOT_CONTROLLER
    with pytest.raises(KafkaError) as caught:
        await other.api.next_producer_id()
    assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    controller.active = active


async def test_waiting_for_leaders_times_out(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, _ = await two(cluster)
    monkeypatch.setattr(cluster_controller, "TIMEOUT_SECONDS", 0.3)
    cluster.brokers[1].silent = True
    (made,) = await controller.api.create_topics([NewTopic("t", assignments={0: [1]})], False)
    assert made.error == ErrorCode.REQUEST_TIMED_OUT
    (grown,) = await controller.api.create_partitions([MorePartitions("t", 2, [[2]])], False)
    assert grown.error == ErrorCode.REQUEST_TIMED_OUT
    # The topic exists all the same.
    cluster.brokers[1].silent = False
    for link in list(cluster.brokers[1].links):
        link.close()
    await until(lambda: ("t", 0) in cluster.brokers[1].leads())


async def test_producer_ids_are_given_once(cluster: FakeCluster) -> None:
    controller, other = await two(cluster)
    got = await asyncio.gather(
        *(other.api.next_producer_id() for _ in range(1500)),
        *(controller.api.next_producer_id() for _ in range(1500)),
    )
    assert len(set(got)) == 3000
    assert max(got) < 4000


async def test_configs_are_set_through_any_broker(cluster: FakeCluster) -> None:
    controller, other = await two(cluster)
    await controller.api.create_topics([NewTopic("t", 1, 1)], False)
    await until(lambda: other.sync_metadata().topic("t") is not None)

    async def stored() -> dict[str, str]:
        return ConfigNode.decode("", (await cluster.store.get(ConfigNode.path("topics", "t")))[0])

    def set_to(name: str, value: str) -> ConfigChange:
        return ConfigChange(name, ConfigOperation.SET, value)

    alter = other.api.alter_configs
    assert (await alter(ResourceType.TOPIC, "t", [set_to("retention.ms", "5")], False)).error == 0
    assert (await alter(ResourceType.TOPIC, "t", [set_to("segment.ms", "6")], False)).error == 0
    assert await stored() == {"retention.ms": "5", "segment.ms": "6"}
    assert (await alter(ResourceType.TOPIC, "t", [set_to("segment.ms", "7")], True)).error == 0
    outcome = await alter(ResourceType.TOPIC, "t", [set_to("segment.ms", "x")], False)
    assert outcome.error == ErrorCode.INVALID_CONFIG
    assert await stored() == {"retention.ms": "5", "segment.ms": "6"}
    outcome = await other.api.replace_configs(ResourceType.TOPIC, "t", {"segment.ms": "8"}, False)
    assert outcome.error == 0
    assert await stored() == {"segment.ms": "8"}
    for name, error in (("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("", ErrorCode.INVALID_REQUEST)):
        assert (await alter(ResourceType.TOPIC, name, [set_to("segment.ms", "6")], False)).error == error
        outcome = await other.api.replace_configs(ResourceType.TOPIC, name, {}, False)
        assert outcome.error == error


async def test_brokers_have_configs_of_their_own_and_common_ones(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = await two(cluster)
    monkeypatch.setattr(cluster_controller, "_APPLIED_SECONDS", 0.0)
    change = [ConfigChange("message.max.bytes", ConfigOperation.SET, "1000")]
    for name in ("", "2"):
        outcome = await other.api.alter_configs(ResourceType.BROKER, name, change, False)
        assert outcome.error == ErrorCode.NONE
    outcome = await other.api.alter_configs(ResourceType.BROKER, "1", change, False)
    assert outcome.error == ErrorCode.INVALID_REQUEST
    assert await cluster.store.children("/config/brokers") == ["2", "<default>"]
