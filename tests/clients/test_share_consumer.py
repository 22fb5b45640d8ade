"""librdkafka's share consumer (KIP-932), unmodified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

Name = Callable[..., str]
Join = Callable[..., Any]

pytestmark = [
    pytest.mark.ottla_only,
    pytest.mark.skipif(not hasattr(ck, "ShareConsumer"), reason="confluent-kafka has it from 2.16 on"),
]


@pytest.fixture
def group(broker: BrokerProcess, new_name: Name) -> str:
    """A group that begins with the first records."""
    name = new_name("group")
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()
    return name


@pytest.fixture
def join(broker: BrokerProcess, group: str) -> Iterator[Join]:
    """Starts members, which are closed after the test."""
    with ExitStack() as stack:

        def start(topic: str, mode: str = "implicit") -> ck.ShareConsumer:
            member = ck.ShareConsumer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "group.id": group,
                    "share.acknowledgement.mode": mode,
                }
            )
            stack.callback(member.close)
            member.subscribe([topic])
            return member

        yield start


def produce(broker: BrokerProcess, topic: str, values: list[str]) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    producer.flush()


def read(member: ck.ShareConsumer) -> list[Any]:
    messages = list(member.poll(0.1))
    assert not [message.error() for message in messages if message.error()]
    return messages


def test_members_share_a_partition(broker: BrokerProcess, new_topic: Name, join: Join) -> None:
    topic = new_topic(1)
    members = [join(topic), join(topic)]
    seen: list[Counter[str]] = [Counter(), Counter()]
    sent: list[str] = []

    def both_have_some() -> bool:
        for member, its in zip(members, seen, strict=True):
            its.update(message.value().decode() for message in read(member))
        return all(seen) and (seen[0] + seen[1]).keys() == set(sent)

    def more_until_both_have_some() -> bool:
        values = [f"{len(sent) + number}" for number in range(20)]
        sent.extend(values)
        produce(broker, topic, values)
        wait_for(lambda: both_have_some() or (seen[0] + seen[1]).keys() == set(sent), "all records")
        return both_have_some()

    wait_for(more_until_both_have_some, "both members to get records")
    assert set((seen[0] + seen[1]).values()) == {1}


def test_explicit_acknowledgements(broker: BrokerProcess, new_topic: Name, join: Join) -> None:
    topic = new_topic(1)
    member = join(topic, "explicit")
    values = [f"{kind}{number}" for number in range(5) for kind in ("accept", "release", "reject")]
    produce(broker, topic, values)
    seen: Counter[str] = Counter()

    def all_done() -> bool:
        for message in read(member):
            value = message.value().decode()
            seen[value] += 1
            assert message.delivery_count() == seen[value]
            kind = ck.AcknowledgeType.ACCEPT
            if value.startswith("release") and seen[value] == 1:
                kind = ck.AcknowledgeType.RELEASE
            elif value.startswith("reject"):
                kind = ck.AcknowledgeType.REJECT
            member.acknowledge(message, kind)
        assert not [error for error in member.commit_sync(10).values() if error is not None]
        return sum(seen.values()) >= len(values) + 5

    wait_for(all_done, "the records, and those that were released once more")
    assert seen == {value: 2 if value.startswith("release") else 1 for value in values}
    produce(broker, topic, ["accept-last"])

    def last() -> bool:
        all_done()
        return "accept-last" in seen

    wait_for(last, "the next record")
    assert max(seen.values()) == 2
