"""Groups of the consumer protocol (KIP-848) with an unmodified client, and their migration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from tests.clients.members import ConfluentMember, Member, shared_out
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

Topic = Callable[..., str]
Join = Callable[..., Member]

pytestmark = pytest.mark.ottla_only


@pytest.fixture
def join(broker: BrokerProcess) -> Iterator[Join]:
    """Starts members of confluent-kafka, which are stopped after the test."""
    with ExitStack() as stack:

        def start(group: str, *topics: str, protocol: str = "consumer", **options: object) -> Member:
            extra = {"group.protocol": protocol} if protocol == "consumer" else {}
            if protocol == "classic":
                extra["partition.assignment.strategy"] = "cooperative-sticky"
            return stack.enter_context(ConfluentMember(broker.bootstrap, group, topics, **extra, **options))

        yield start


def produce(broker: BrokerProcess, topic: str, start: int, count: int, partitions: int) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(start, start + count):
        producer.produce(topic, b"v", b"%d" % number, partition=number % partitions)
    producer.flush()


def keys(*members: Member) -> Counter[bytes]:
    return Counter(got.key or b"" for member in members for _, got in member.records)


def group_type(broker: BrokerProcess, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    listed = admin.list_consumer_groups().result()
    found = {each.group_id: each.type.name for each in listed.valid}
    return found[group]


def test_members_join_grow_and_leave(
    broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    topic, group = new_topic(4), new_name("group")
    first = join(group, topic)
    shared_out([first], topic, 4)
    second = join(group, topic)
    shared_out([first, second], topic, 4)
    produce(broker, topic, 0, 40, 4)
    wait_for(lambda: sum(keys(first, second).values()) == 40, "40 records")
    first.commit_position()
    second.commit_position()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 8)])[topic].result()
    shared_out([first, second], topic, 8)
    gone = [event for event in (*first.events, *second.events) if event[0] != "assigned"]
    assert len(gone) == 1, "new partitions stop no one"
    assert group_type(broker, group) == "CONSUMER"
    described = admin.describe_consumer_groups([group])[group].result()
    assert described.state.name == "STABLE"
    assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [4, 4]
    second.leave()
    shared_out([first], topic, 8)
    produce(broker, topic, 100, 40, 8)
    wait_for(lambda: sum(keys(first, second).values()) == 80, "the rest, from the committed offsets")


def test_a_group_migrates_while_it_is_read(
    broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    topic, group = new_topic(4), new_name("group")
    old = join(group, topic, protocol="classic")
    shared_out([old], topic, 4)
    assert group_type(broker, group) == "CLASSIC"
    new = join(group, topic)
    shared_out([old, new], topic, 4)
    assert group_type(broker, group) == "CONSUMER"
    produce(broker, topic, 0, 40, 4)
    wait_for(lambda: sum(keys(old, new).values()) == 40, "40 records")
    for member in (old, new):
        member.commit_position()
    new.leave()
    shared_out([old], topic, 4)
    assert group_type(broker, group) == "CLASSIC"
    produce(broker, topic, 40, 40, 4)
    wait_for(lambda: sum(keys(old, new).values()) == 80, "the rest")
    assert max(keys(old, new).values()) == 1


def test_configs_of_a_group(broker: BrokerProcess, new_name: Topic) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ResourceType.GROUP, new_name("group/ä"))

    def alter(value: str) -> None:
        entry = ConfigEntry(
            "consumer.heartbeat.interval.ms", value, incremental_operation=AlterConfigOpType.SET
        )
        changed = ConfigResource(ResourceType.GROUP, resource.name, incremental_configs=[entry])
        admin.incremental_alter_configs([changed])[changed].result()

    alter("200")
    found = admin.describe_configs([resource])[resource].result()
    assert found["consumer.heartbeat.interval.ms"].value == "200"
    assert found["consumer.session.timeout.ms"].value == "45000"
    with pytest.raises(ck.KafkaException, match=r"group\.consumer\.min\.heartbeat\.interval\.ms \(100\)"):
        alter("10")


def test_a_pattern(broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join) -> None:
    topic = new_topic(2)
    member = join(new_name("group"), pattern="^" + topic[:-1] + f"[{topic[-1]}]$")
    shared_out([member], topic, 2)
