"""The coordinated consumer with a broker that has ``coordinator.listener``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

import pytest
from harness.ports import free_port
from tests.conftest import QUICK
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import until, wait_for

from ottla_client import (
    Blacklist,
    Consumer,
    CoordinatedConsumer,
    Producer,
    TopicPartition,
    Whitelist,
)
from ottla_client.errors import ClosedError, ConfigurationError, GroupError, RebalanceFailedError
from ottla_client.sync import CoordinatedConsumer as SyncCoordinatedConsumer

pytestmark = pytest.mark.ottla_only


class CoordinatorBroker(BrokerProcess):
    coordinator = ""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorBroker]:
    port = free_port()
    settings = {**QUICK, "coordinator.listener": port, "coordinator.min.session.timeout.ms": 1000}
    broker = CoordinatorBroker(tmp_path_factory.mktemp("coordinator") / "data", settings)
    broker.coordinator = f"127.0.0.1:{port}"
    broker.start()
    yield broker
    assert broker.stop() == 0
    assert not broker.complaints()


async def put(broker: BrokerProcess, topic: str, partition: int, *values: bytes) -> None:
    async with Producer(broker.bootstrap) as producer:
        for value in values:
            await producer.send(topic, value, partition=partition)
        await producer.flush()


async def take(consumer: CoordinatedConsumer, count: int) -> list[bytes | None]:
    """The values of the next records, sorted."""
    values = []
    async with asyncio.timeout(60):
        while len(values) < count:
            values += [record.value for record in await consumer.poll(1000)]
    return sorted(values)


def consumer_of(
    broker: CoordinatorBroker, *topics: str, group: str, **options: object
) -> CoordinatedConsumer:
    given: dict[str, object] = {"auto_offset_reset": "smallest", "session_timeout_ms": 20_000, **options}
    return CoordinatedConsumer(
        *topics,
        coordinator_servers=broker.coordinator,
        group_id=group,
        **given,  # type: ignore[arg-type]
    )


async def test_two_consumers_share_and_the_next_one_goes_on(broker: CoordinatorBroker) -> None:
    create_topic(broker, "shared", 2)
    await put(broker, "shared", 0, b"a", b"b")
    await put(broker, "shared", 1, b"c")
    async with consumer_of(broker, "shared", group="sharing") as first:
        assert first.assignment() == {TopicPartition("shared", 0), TopicPartition("shared", 1)}
        assert await take(first, 3) == [b"a", b"b", b"c"]
        polling = asyncio.create_task(take(first, 1))
        async with consumer_of(broker, "shared", group="sharing") as second:
            await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
            for consumer, name in ((first, b"first"), (second, b"second")):
                (owned,) = consumer.assignment()
                await put(broker, "shared", owned.partition, name)
            assert await polling == [b"first"]
            # Processed, so that the rebalance need not wait for the next poll.
            await first.poll(0)
            assert await take(second, 1) == [b"second"]
        await until(lambda: len(first.assignment()) == 2)
    await put(broker, "shared", 1, b"d")
    async with consumer_of(broker, "shared", group="sharing") as third:
        # Closing has committed what was handed out.
        assert await take(third, 1) == [b"d"]


async def test_commits_by_hand(broker: CoordinatorBroker) -> None:
    create_topic(broker, "by-hand", 1)
    await put(broker, "by-hand", 0, b"a", b"b", b"c")
    async with consumer_of(broker, "by-hand", group="by-hand", enable_auto_commit=False) as consumer:
        assert (await consumer.getone()).value == b"a"
        await asyncio.gather(consumer.commit(), consumer.commit())
        assert (await consumer.getone()).value == b"b"
    async with consumer_of(broker, "by-hand", group="by-hand", enable_auto_commit=False) as consumer:
        assert await take(consumer, 2) == [b"b", b"c"]


async def test_streams_and_filters(broker: CoordinatorBroker) -> None:
    consumer = consumer_of(broker, group="filtered")
    await consumer.start()
    try:
        (stream, other) = await consumer.create_streams_by_filter(Whitelist("filtered-.*"), 2)
        assert not consumer.assignment()
        create_topic(broker, "filtered-1", 2)
        await until(lambda: len(stream.assignment()) == len(other.assignment()) == 1)
        with pytest.raises(ConfigurationError, match="create streams once"):
            await consumer.create_streams({"t": 1})
        with pytest.raises(ConfigurationError, match="read the streams"):
            await consumer.getone()
    finally:
        await consumer.close()
    with pytest.raises(ClosedError):
        await consumer.commit()
    blind = consumer_of(broker, group="blind")
    await blind.start()
    await blind.create_streams_by_filter(Blacklist(".*"))
    assert not blind.assignment()
    await blind.close()


async def test_what_the_coordinator_refuses_is_said(broker: CoordinatorBroker) -> None:
    create_topic(broker, "refused", 1)
    with pytest.raises(GroupError, match="INVALID_SESSION_TIMEOUT"):
        await consumer_of(broker, "refused", group="refused", session_timeout_ms=999).start()
    async with consumer_of(broker, "refused", group="taken", consumer_id="me"):
        with pytest.raises(GroupError, match="taken in group taken by the consumer at 127"):
            await consumer_of(
                broker, "refused", group="taken", consumer_id="me", session_timeout_ms=1000
            ).start()
    async with Consumer("refused", bootstrap_servers=broker.bootstrap, group_id="classic") as classic:
        await until(classic.assignment)
        with pytest.raises(GroupError, match="1 members of the classic protocol"):
            await consumer_of(broker, "refused", group="classic").start()


async def refusal(member: Consumer) -> None:
    """Poll until the group refuses the member, which raises GroupError."""
    while True:
        await member.poll(50)


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [("classic", "INCONSISTENT_GROUP_PROTOCOL"), ("consumer", "registered with the coordinator of 2012")],
)
async def test_members_that_coordinate_otherwise_are_refused(
    broker: CoordinatorBroker, protocol: Literal["classic", "consumer"], reason: str
) -> None:
    create_topic(broker, f"held-{protocol}", 1)
    group = f"held-{protocol}"
    member = Consumer(group, bootstrap_servers=broker.bootstrap, group_id=group, group_protocol=protocol)
    try:
        async with asyncio.timeout(60):
            async with consumer_of(broker, group, group=group):
                await member.start()
                with pytest.raises(GroupError, match=reason):
                    await refusal(member)
            # It tries again after an error.
            while not member.assignment():
                with suppress(GroupError):
                    await member.poll(50)
    finally:
        await member.close()


async def test_a_coordinator_that_comes_back_finds_its_consumers(broker: CoordinatorBroker) -> None:
    create_topic(broker, "again", 1)
    await put(broker, "again", 0, b"a")
    async with consumer_of(broker, "again", group="again") as consumer:
        assert await take(consumer, 1) == [b"a"]
        await consumer.commit()
        broker.kill()
        await until(lambda: not consumer.assignment())
        broker.start()
        await until(consumer.assignment)
        await put(broker, "again", 0, b"b")
        assert await take(consumer, 1) == [b"b"]


async def test_no_coordinator(broker: CoordinatorBroker) -> None:
    nowhere = CoordinatedConsumer(
        "t", coordinator_servers=f"127.0.0.1:{free_port()}", group_id="g", default_api_timeout_ms=300
    )
    with pytest.raises(RebalanceFailedError, match="no coordinator has started"):
        await nowhere.start()
    wrong = CoordinatedConsumer(
        "t",
        coordinator_servers=broker.bootstrap,
        group_id="g",
        default_api_timeout_ms=700,
        request_timeout_ms=600,
    )
    with pytest.raises(RebalanceFailedError):
        await wrong.start()
    for options in ({"group_id": "a/b"}, {"group_id": "g", "auto_offset_reset": "earliest"}):
        with pytest.raises(ConfigurationError):
            CoordinatedConsumer("t", **options)


def test_without_asyncio(broker: CoordinatorBroker) -> None:
    create_topic(broker, "blocking", 1)
    asyncio.run(put(broker, "blocking", 0, b"a"))
    with SyncCoordinatedConsumer(
        "blocking", coordinator_servers=broker.coordinator, group_id="blocking", auto_offset_reset="smallest"
    ) as consumer:
        assert wait_for(consumer.poll, "the record")[0].value == b"a"
        consumer.commit()
