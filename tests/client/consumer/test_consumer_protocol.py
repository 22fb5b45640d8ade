"""Consumers in groups whose partitions the broker assigns (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.consumer.conftest import numbered, offsets, put, take
from tests.support.waiting import until

from ottla_client import Consumer, RebalanceListener, TopicPartition
from ottla_client.errors import (
    ConfigurationError,
    GroupError,
    PollIntervalExceededError,
)
from ottla_client.group.consumer_member_state import (
    REACTIONS,
    TRANSITIONS,
    ConsumerMemberState,
    HeartbeatReaction,
    reaction_to,
)
from ottla_client.sync import Consumer as SyncConsumer
from ottla_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

New = Callable[..., Any]

pytestmark = pytest.mark.ottla_only


class Recorder(RebalanceListener):
    """Records the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []

    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))

    async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        self.calls.append(("assigned", assigned))

    async def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
        self.calls.append(("lost", lost))


async def test_partitions_are_shared_and_no_record_is_lost_or_doubled(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(4), new_name("group")
    for partition in range(4):
        put(broker, topic, numbered(500), partition)
    options = {"group_id": group, "group_protocol": "consumer", "max_poll_records": 20}
    seen: list[tuple[int, int]] = []

    async def work(consumer: Any, until_seen: int) -> None:
        while len(seen) < until_seen:
            seen.extend((record.partition, record.offset) for record in await consumer.poll(100))
            await asyncio.sleep(0.002)

    async with asyncio.timeout(60):
        first = await new_consumer(topic, **options)
        await work(first, 300)
        second = await new_consumer(topic, group_remote_assignor="range", **options)
        await asyncio.gather(work(first, 1_200), work(second, 1_200))
        assert first.assignment()
        await first.close()
        await work(second, 2_000)
        # All records may have been read before the first one's partitions have come over.
        while len(second.assignment()) < 4:
            await second.poll(100)
    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(500)]
    assert len(second.assignment()) == 4


async def test_a_member_keeps_what_it_may_keep(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(4), new_name("group")
    recorder = Recorder()
    first = await new_consumer(group_id=group, group_protocol="consumer")
    first.subscribe([topic], listener=recorder)
    polling = asyncio.create_task(first.getone())
    await until(lambda: len(first.assignment()) == 4)
    second = await new_consumer(topic, group_id=group, group_protocol="consumer")
    waiting = asyncio.create_task(second.getone())
    await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
    assert [(what, len(partitions)) for what, partitions in recorder.calls] == [
        ("assigned", 4),
        ("revoked", 2),
        ("assigned", 0),
    ]
    for task in (polling, waiting):
        task.cancel()


async def test_a_member_that_the_group_has_removed_joins_again(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(1), new_name("group")
    put(broker, topic, numbered(10))
    recorder = Recorder()
    consumer = await new_consumer(group_id=group, group_protocol="consumer", enable_auto_commit=False)
    consumer.subscribe([topic], listener=recorder)
    assert offsets(await take(consumer, 5)) == list(range(5))
    await consumer.commit()
    member = consumer._engine.commits.member
    member.epoch += 7  # the broker has never given it this epoch
    member._send_now()
    assert offsets(await take(consumer, 5)) == list(range(5, 10))
    await until(lambda: ("lost", frozenset({TopicPartition(topic, 0)})) in recorder.calls)


async def test_an_application_that_does_not_poll_leaves(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(1), new_name("group")
    put(broker, topic, numbered(10))
    first = await new_consumer(
        topic, group_id=group, group_protocol="consumer", max_poll_interval_ms=300, max_poll_records=1
    )
    assert offsets(await take(first, 1)) == [0]
    second = await new_consumer(topic, group_id=group, group_protocol="consumer")
    assert len(await take(second, 1)) == 1
    await second.close()
    with pytest.raises(PollIntervalExceededError):
        await asyncio.wait_for(_poll_on(first), 60)
    assert await take(first, 1)


async def _poll_on(consumer: Any) -> None:
    while True:
        await consumer.poll(100)


async def test_a_static_member_comes_back_to_its_partitions(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(2), new_name("group")
    options = {"group_id": group, "group_protocol": "consumer"}
    other = await new_consumer(topic, **options)
    polling = asyncio.create_task(other.getone())
    first = await new_consumer(topic, group_instance_id="one", **options)
    waiting = asyncio.create_task(first.getone())
    await until(lambda: len(first.assignment()) == len(other.assignment()) == 1)
    had = first.assignment()
    rival = await new_consumer(topic, group_instance_id="one", **options)
    with pytest.raises(GroupError, match="owned by"):
        await rival.getone()
    await rival.close()
    waiting.cancel()
    await first.close()
    again = await new_consumer(topic, group_instance_id="one", **options)
    waiting = asyncio.create_task(again.getone())
    await until(lambda: again.assignment() == had)
    assert len(other.assignment()) == 1
    for task in (polling, waiting):
        task.cancel()


async def test_a_subscription_changes(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    one, two = new_topic(1), new_topic(1)
    put(broker, one, numbered(3))
    put(broker, two, numbered(3))
    consumer = await new_consumer(one, group_id=new_name("group"), group_protocol="consumer")
    assert len(await take(consumer, 3)) == 3
    consumer.subscribe([two])
    assert {record.topic for record in await take(consumer, 3)} == {two}


async def test_classic_and_new_consumers_share_a_group(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(2), new_name("group")
    old = await new_consumer(
        topic, group_id=group, heartbeat_interval_ms=50, partition_assignment_strategy=["cooperative-sticky"]
    )
    first = asyncio.create_task(old.getone())
    await until(lambda: len(old.assignment()) == 2)
    new = await new_consumer(topic, group_id=group, group_protocol="consumer")
    second = asyncio.create_task(new.getone())
    await until(lambda: len(old.assignment()) == len(new.assignment()) == 1)
    second.cancel()
    await new.close()
    await until(lambda: len(old.assignment()) == 2)
    first.cancel()


async def test_an_unknown_assignor_is_an_error(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    consumer = await new_consumer(
        new_topic(), group_id=new_name("group"), group_protocol="consumer", group_remote_assignor="best"
    )
    with pytest.raises(GroupError, match="Supported assignors: uniform, range"):
        await consumer.getone()


def test_the_blocking_consumer(broker: BrokerProcess, new_topic: New, new_name: New) -> None:
    topic = new_topic()
    put(broker, topic, numbered(10))
    with SyncConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=new_name("group"),
        group_protocol="consumer",
        auto_offset_reset="earliest",
    ) as consumer:
        records = iter(consumer)
        assert [next(records).offset for _ in range(10)] == list(range(10))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"group_protocol": "modern"}, "group_protocol is 'modern'"),
        ({"group_remote_assignor": "uniform"}, "needs group_protocol='consumer'"),
        ({"group_protocol": "consumer", "session_timeout_ms": 9_000}, "session_timeout_ms can't be set"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 9}, "heartbeat_interval_ms can't be set"),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": ["range"]},
            "partition_assignment_strategy can't be set",
        ),
    ],
)
def test_options_that_contradict_the_protocol(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        Consumer("t", group_id="g", **options)


def test_each_answer_has_a_reaction() -> None:
    assert reaction_to(ErrorCode.GROUP_ID_NOT_FOUND, 3) is HeartbeatReaction.JOIN_AGAIN
    assert reaction_to(ErrorCode.GROUP_ID_NOT_FOUND, 0) is HeartbeatReaction.GIVE_UP
    assert reaction_to(ErrorCode.UNSUPPORTED_ASSIGNOR, 0) is HeartbeatReaction.GIVE_UP
    for reaction in set(REACTIONS.values()):
        for state in (ConsumerMemberState.STOPPED, ConsumerMemberState.FENCED):
            assert (state, reaction) not in TRANSITIONS
