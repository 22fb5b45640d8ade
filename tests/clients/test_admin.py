"""Admin calls of the three clients for topics, configs, groups, offsets and the cluster."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import confluent_kafka.admin as ca
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource as AiokafkaResource
from aiokafka.admin.config_resource import ConfigResourceType as AiokafkaResourceType
from aiokafka.structs import TopicPartition as AiokafkaPartition
from tests.clients.kits import Kit, Sent, aiokafka_admin, kafka
from tests.clients.members import ConfluentMember, shared_out
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

Topic = Callable[..., str]
Name = Callable[..., str]


@pytest.fixture
def admin(broker: BrokerProcess) -> ca.AdminClient:
    return ca.AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def python_admin(broker: BrokerProcess) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def with_aiokafka(broker: BrokerProcess, run: Callable[[AIOKafkaAdminClient], Any]) -> Any:
    async def main() -> Any:
        client = await aiokafka_admin(broker)
        try:
            return await run(client)
        finally:
            await client.close()

    return asyncio.run(main())


def error_of(future: Any) -> int:
    """The error code that a confluent future ends with."""
    with pytest.raises(ck.KafkaException) as caught:
        future.result(60)
    code: int = caught.value.args[0].code()
    return code


# ---- topics


def test_topics_with_confluent(admin: ca.AdminClient, new_name: Name) -> None:
    name = new_name("admin")
    new = ca.NewTopic(name, 3, 1, config={"retention.ms": "123456", "cleanup.policy": "compact,delete"})
    admin.create_topics([new], validate_only=True)[name].result(60)
    assert name not in admin.list_topics(timeout=60).topics
    admin.create_topics([new])[name].result(60)
    assert error_of(admin.create_topics([new])[name]) == ck.KafkaError.TOPIC_ALREADY_EXISTS
    found = wait_for(lambda: admin.list_topics(timeout=60).topics.get(name), "the topic in the list")
    assert sorted(found.partitions) == [0, 1, 2]
    described = admin.describe_topics(ck.TopicCollection([name]))[name].result(60)
    assert described.name == name
    assert len(described.partitions) == 3
    assert not described.is_internal
    assert all(p.leader is not None and len(p.isr) == 1 for p in described.partitions)
    admin.delete_topics([name])[name].result(60)
    wait_for(lambda: name not in admin.list_topics(timeout=60).topics, "the topic to be gone")
    assert error_of(admin.delete_topics([name])[name]) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_topics_with_kafka_python(python_admin: Any, new_name: Name) -> None:
    name = new_name("admin")
    made = python_admin.create_topics({name: {"num_partitions": 2, "configs": {"retention.ms": "99000"}}})
    assert made["topics"][0]["name"] == name
    python_admin.wait_for_topics([name])
    assert name in python_admin.list_topics()
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        python_admin.create_topics({name: {"num_partitions": 2}})
    described = python_admin.describe_topics([name])[0]
    topic_id = described["topic_id"]
    assert len(described["partitions"]) == 2
    assert python_admin.describe_topics([uuid.UUID(str(topic_id))])[0]["name"] == name
    pages = python_admin.describe_topic_partitions([name], response_partition_limit=1)
    assert [p["partition_index"] for p in pages["topics"][0]["partitions"]] == [0]
    assert pages["next_cursor"]["partition_index"] == 1
    python_admin.delete_topics([name])
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        python_admin.delete_topics([name])


def test_topics_with_aiokafka(broker: BrokerProcess, new_name: Name) -> None:
    name = new_name("admin")

    async def run(client: AIOKafkaAdminClient) -> None:
        made = await client.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "99000"})])
        assert made.topic_errors[0][1] == 0
        assert name in await client.list_topics()
        described = (await client.describe_topics([name]))[0]
        assert len(described["partitions"]) == 2
        await client.create_partitions({name: NewPartitions(3)})
        described = (await client.describe_topics([name]))[0]
        assert len(described["partitions"]) == 3
        gone = await client.delete_topics([name])
        assert gone.topic_error_codes[0][1] == 0

    with_aiokafka(broker, run)


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "error"),
    [
        ("with space", 1, 1, {}, ck.KafkaError.TOPIC_EXCEPTION),
        ("..", 1, 1, {}, ck.KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, {}, ck.KafkaError.TOPIC_EXCEPTION),
        ("zero-partitions", 0, 1, {}, ck.KafkaError.INVALID_PARTITIONS),
        ("too-many-replicas", 1, 5, {}, ck.KafkaError.INVALID_REPLICATION_FACTOR),
        ("unknown-config", 1, 1, {"no.such.config": "1"}, ck.KafkaError.INVALID_CONFIG),
        ("wrong-config", 1, 1, {"retention.ms": "soon"}, ck.KafkaError.INVALID_CONFIG),
        ("wrong-policy", 1, 1, {"cleanup.policy": "shred"}, ck.KafkaError.INVALID_CONFIG),
        ("out-of-range", 1, 1, {"segment.bytes": "1"}, ck.KafkaError.INVALID_CONFIG),
    ],
)
def test_topics_that_cannot_be_made(
    name: str, partitions: int, replicas: int, config: dict[str, str], error: int, admin: ca.AdminClient
) -> None:
    future = admin.create_topics([ca.NewTopic(name, partitions, replicas, config=config)])[name]
    assert error_of(future) == error
    assert name not in admin.list_topics(timeout=60).topics


def test_names_that_collide_in_metrics_are_refused(admin: ca.AdminClient, new_topic: Topic) -> None:
    name = new_topic(prefix="col.lide")
    other = name.replace(".", "_")
    assert error_of(admin.create_topics([ca.NewTopic(other, 1, 1)])[other]) == ck.KafkaError.TOPIC_EXCEPTION


def test_create_partitions(admin: ca.AdminClient, broker: BrokerProcess, kit: Kit, new_topic: Topic) -> None:
    topic = new_topic(2)
    grow = lambda count: admin.create_partitions([ca.NewPartitions(topic, count)])[topic]  # noqa: E731
    grow(4).result(60)
    wait_for(
        lambda: len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 4, "four partitions"
    )
    assert error_of(grow(3)) == ck.KafkaError.INVALID_PARTITIONS
    assert error_of(grow(4)) == ck.KafkaError.INVALID_PARTITIONS
    assert kit.produce(broker, topic, [Sent(b"k", b"v", partition=3)]) == [0]
    assert kit.consume(broker, topic, 1, partitions=[3])[0].value == b"v"


# ---- configs


def test_configs_of_a_topic_with_confluent(admin: ca.AdminClient, new_topic: Topic) -> None:
    topic = new_topic(retention_ms=11_000)
    resource = ca.ConfigResource(ca.ResourceType.TOPIC, topic)

    def configs() -> dict[str, ca.ConfigEntry]:
        found: dict[str, ca.ConfigEntry] = admin.describe_configs([resource])[resource].result(60)
        return found

    found = configs()
    assert found["retention.ms"].value == "11000"
    assert found["retention.ms"].source == ca.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["max.message.bytes"].value == "1048588"
    assert found["max.message.bytes"].is_default
    assert found["cleanup.policy"].value == "delete"
    assert len(found) >= 30

    def set_to(operation: ca.AlterConfigOpType, name: str, value: str | None) -> ca.ConfigResource:
        entry = ca.ConfigEntry(name, value, incremental_operation=operation)
        return ca.ConfigResource(ca.ResourceType.TOPIC, topic, incremental_configs=[entry])

    def incremental(resource: ca.ConfigResource) -> Any:
        return admin.incremental_alter_configs([resource])[resource]

    incremental(set_to(ca.AlterConfigOpType.SET, "max.message.bytes", "2000")).result(60)
    incremental(set_to(ca.AlterConfigOpType.APPEND, "cleanup.policy", "compact")).result(60)
    wait_for(lambda: configs()["max.message.bytes"].value == "2000", "the changed config")
    assert configs()["retention.ms"].value == "11000"
    assert configs()["cleanup.policy"].value == "delete,compact"
    incremental(set_to(ca.AlterConfigOpType.SUBTRACT, "cleanup.policy", "compact")).result(60)
    incremental(set_to(ca.AlterConfigOpType.DELETE, "max.message.bytes", None)).result(60)
    wait_for(lambda: configs()["max.message.bytes"].is_default, "the config's default")
    assert configs()["cleanup.policy"].value == "delete"
    wrong = set_to(ca.AlterConfigOpType.SET, "max.message.bytes", "many")
    assert error_of(incremental(wrong)) == ck.KafkaError.INVALID_CONFIG
    assert configs()["max.message.bytes"].is_default


def test_configs_with_kafka_python(python_admin: Any, new_topic: Topic, is_kafka: bool) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType

    topic = new_topic(retention_ms=11_000)
    found = python_admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic)], include_synonyms=True
    )
    assert found["topic"][topic]["retention.ms"]["value"] == "11000"
    python_admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "12000"})])
    found = python_admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert found["topic"][topic]["retention.ms"]["value"] == "12000"
    python_admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})])
    every = python_admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all"
    )
    assert every["topic"][topic]["retention.ms"]["value"] == "604800000"
    node = python_admin.describe_cluster()["brokers"][0]
    name = str(node.get("node_id", node.get("broker_id")))
    mine = python_admin.describe_configs(
        [ConfigResource(ConfigResourceType.BROKER, name)], config_filter="all"
    )
    assert mine["broker"][name]["group.min.session.timeout.ms"]["value"] == "500"


def test_configs_with_aiokafka(broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic(retention_ms=11_000)

    async def run(client: AIOKafkaAdminClient) -> None:
        resource = AiokafkaResource(AiokafkaResourceType.TOPIC, topic, {"max.message.bytes": "5000"})
        await client.alter_configs([resource])
        asked = AiokafkaResource(AiokafkaResourceType.TOPIC, topic)
        answer = (await client.describe_configs([asked]))[0].resources[0]
        assert answer[0] == 0
        found = {entry[0]: entry[1] for entry in answer[4]}
        assert found["max.message.bytes"] == "5000"
        assert found["retention.ms"] == "604800000", "AlterConfigs replaces all that was set"

    with_aiokafka(broker, run)


def test_an_altered_config_acts(
    admin: ca.AdminClient, kit: Kit, broker: BrokerProcess, new_topic: Topic
) -> None:
    topic = new_topic()
    entry = ca.ConfigEntry("max.message.bytes", "1000", incremental_operation=ca.AlterConfigOpType.SET)
    resource = ca.ConfigResource(ca.ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)

    def refused() -> bool:
        try:
            kit.produce(broker, topic, [Sent(b"k", b"x" * 2000)])
        except Exception as error:
            return "large" in (str(error) + repr(error)).lower()
        return False

    wait_for(refused, "the lower limit to act")
    assert kit.produce(broker, topic, [Sent(b"k", b"small")])


def test_configs_of_unknown_resources(admin: ca.AdminClient) -> None:
    resource = ca.ConfigResource(ca.ResourceType.TOPIC, "no-such-topic")
    assert error_of(admin.describe_configs([resource])[resource]) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


# ---- the cluster


def test_the_cluster(admin: ca.AdminClient, python_admin: Any, broker: BrokerProcess) -> None:
    cluster = admin.describe_cluster().result(60)
    assert [(node.host, node.port) for node in cluster.nodes] == [("127.0.0.1", broker.port)]
    assert cluster.controller.id == cluster.nodes[0].id
    assert len(cluster.cluster_id) == 22
    found = python_admin.describe_cluster()
    assert found["cluster_id"] == cluster.cluster_id

    async def run(client: AIOKafkaAdminClient) -> Any:
        return await client.describe_cluster()

    assert with_aiokafka(broker, run)["cluster_id"] == cluster.cluster_id


def test_log_dirs(kit: Kit, python_admin: Any, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic(2)
    kit.produce(broker, topic, [Sent(b"k", b"x" * 1000)])
    answer = python_admin.describe_log_dirs()
    text = repr(answer)
    assert topic in text
    assert str(broker.folder) in text


# ---- records and offsets


def test_delete_records_and_list_offsets(
    admin: ca.AdminClient, broker: BrokerProcess, kit: Kit, new_topic: Topic
) -> None:
    topic = new_topic(retention_ms=-1)  # the records are old
    kit.produce(broker, topic, [Sent(b"%d" % i, b"v", timestamp=1_700_000_000_000 + i) for i in range(10)])
    at = ck.TopicPartition(topic, 0)

    def offset(spec: Any) -> int:
        found: int = admin.list_offsets({at: spec})[at].result(60).offset
        return found

    assert offset(ca.OffsetSpec.earliest()) == 0
    assert offset(ca.OffsetSpec.latest()) == 10
    assert offset(ca.OffsetSpec.max_timestamp()) == 9
    assert offset(ca.OffsetSpec.for_timestamp(1_700_000_000_004)) == 4
    delete = lambda to: next(iter(admin.delete_records([ck.TopicPartition(topic, 0, to)]).values()))  # noqa: E731
    assert delete(4).result(60).low_watermark == 4
    assert offset(ca.OffsetSpec.earliest()) == 4
    assert error_of(delete(11)) == ck.KafkaError.OFFSET_OUT_OF_RANGE
    assert delete(2).result(60).low_watermark == 4
    assert delete(ck.OFFSET_END).result(60).low_watermark == 10
    assert kit.produce(broker, topic, [Sent(b"k", b"v")]) == [10]


def test_delete_records_with_the_others(
    python_admin: Any, broker: BrokerProcess, kit: Kit, new_topic: Topic
) -> None:
    topic = new_topic()
    kit.produce(broker, topic, [Sent(b"%d" % i, b"v") for i in range(10)])
    at = kafka.TopicPartition(topic, 0)
    assert python_admin.delete_records({at: 3})[at]["low_watermark"] == 3
    assert python_admin.list_partition_offsets({at: kafka.admin.OffsetSpec.EARLIEST})[at].offset == 3

    async def run(client: AIOKafkaAdminClient) -> Any:
        return await client.delete_records({AiokafkaPartition(topic, 0): RecordsToDelete(before_offset=6)})

    with_aiokafka(broker, run)
    assert python_admin.list_partition_offsets({at: kafka.admin.OffsetSpec.EARLIEST})[at].offset == 6


# ---- groups


def test_groups_with_confluent(
    admin: ca.AdminClient, broker: BrokerProcess, new_topic: Topic, new_name: Name
) -> None:
    topic, group = new_topic(2), new_name("group")

    def state() -> Any:
        found = admin.list_consumer_groups().result(60)
        assert not found.errors
        return next((one.state for one in found.valid if one.group_id == group), None)

    with ConfluentMember(broker.bootstrap, group, [topic], **{"client.id": "describe-me"}) as member:
        shared_out([member], topic, 2)
        member.commit({(topic, 0): (3, ""), (topic, 1): (4, "")})
        wait_for(lambda: state() == ck.ConsumerGroupState.STABLE, "a stable group in the list")
        described = admin.describe_consumer_groups([group])[group].result(60)
        assert described.state == ck.ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        (one,) = described.members
        assert one.client_id == "describe-me"
        assert one.host == "/127.0.0.1"
        assert {(p.topic, p.partition) for p in one.assignment.topic_partitions} == {(topic, 0), (topic, 1)}
        assert error_of(admin.delete_consumer_groups([group])[group]) == ck.KafkaError.NON_EMPTY_GROUP
        used = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 0, 1)])
        (refused,) = admin.alter_consumer_group_offsets([used])[group].result(60).topic_partitions
        assert refused.error.code() == ck.KafkaError.UNKNOWN_MEMBER_ID
    wait_for(lambda: state() == ck.ConsumerGroupState.EMPTY, "an empty group in the list")

    def offsets() -> dict[int, int]:
        asked = ck.ConsumerGroupTopicPartitions(group)
        answer = admin.list_consumer_group_offsets([asked])[group].result(60)
        return {p.partition: p.offset for p in answer.topic_partitions}

    assert offsets() == {0: 3, 1: 4}
    moved = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 0, 1)])
    admin.alter_consumer_group_offsets([moved])[group].result(60)
    assert offsets() == {0: 1, 1: 4}
    admin.delete_consumer_groups([group])[group].result(60)
    assert state() is None
    assert error_of(admin.delete_consumer_groups([group])[group]) == ck.KafkaError.GROUP_ID_NOT_FOUND
    assert admin.describe_consumer_groups([group])[group].result(60).state == ck.ConsumerGroupState.DEAD


def test_groups_with_kafka_python(
    python_admin: Any, broker: BrokerProcess, new_topic: Topic, new_name: Name
) -> None:
    topic, group = new_topic(2), new_name("group")
    with ConfluentMember(broker.bootstrap, group, [topic]) as member:
        shared_out([member], topic, 2)
        member.commit({(topic, 0): (3, "three"), (topic, 1): (4, "")})
        described = python_admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        assert len(described["members"]) == 1
        listed = {one["group_id"]: one for one in python_admin.list_groups()}
        assert listed[group]["protocol_type"] == "consumer"
        assert group in {one["group_id"] for one in python_admin.list_groups(states_filter=["Stable"])}
        assert group not in {one["group_id"] for one in python_admin.list_groups(states_filter=["Empty"])}
        found = python_admin.delete_group_offsets(group, [kafka.TopicPartition(topic, 0)])
        assert "GroupSubscribedToTopic" in repr(found)
    found = python_admin.list_group_offsets([group])[group]
    assert {p.partition: one.offset for p, one in found.items()} == {0: 3, 1: 4}
    python_admin.delete_group_offsets(group, [kafka.TopicPartition(topic, 0)])
    found = python_admin.list_group_offsets([group])[group]
    assert {p.partition: one.offset for p, one in found.items()} == {1: 4}
    python_admin.delete_groups([group])
    assert group not in {one["group_id"] for one in python_admin.list_groups()}


def test_groups_with_aiokafka(broker: BrokerProcess, new_topic: Topic, new_name: Name) -> None:
    topic, group = new_topic(1), new_name("group")
    with ConfluentMember(broker.bootstrap, group, [topic]) as member:
        shared_out([member], topic, 1)
        member.commit({(topic, 0): (3, "three")})

        async def run(client: AIOKafkaAdminClient) -> None:
            assert (group, "consumer") in await client.list_consumer_groups()
            (answer,) = await client.describe_consumer_groups([group])
            assert answer.groups[0][2] == "Stable"
            found = await client.list_consumer_group_offsets(group)
            assert found[AiokafkaPartition(topic, 0)].offset == 3
            # confluent-kafka sends the zero that ends the string in C as well
            assert found[AiokafkaPartition(topic, 0)].metadata.rstrip("\0") == "three"

        with_aiokafka(broker, run)


def test_a_member_is_removed_by_an_admin(
    python_admin: Any, broker: BrokerProcess, new_topic: Topic, new_name: Name
) -> None:
    topic, group = new_topic(2), new_name("group")
    with ConfluentMember(broker.bootstrap, group, [topic], instance_id="stays") as stays:
        shared_out([stays], topic, 2)
        goes = ConfluentMember(broker.bootstrap, group, [topic], instance_id="goes", session_ms=60_000)
        shared_out([stays, goes], topic, 2)
        goes.leave()
        python_admin.remove_group_members(group, [kafka.admin.MemberToRemove(group_instance_id="goes")])
        shared_out([stays], topic, 2)
