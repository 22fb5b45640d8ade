"""Consumers in groups: partitions move, and offsets of processed records are committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.base.conftest import client_tasks
from tests.client.base.test_cancel import CancelAt
from tests.client.consumer.conftest import QUICK, assigned, delete_topic, numbered, offsets, put, take, tp
from tests.client.consumer.fakegroup import FakeGroup
from tests.support.topics import create_topic
from tests.support.waiting import until

from ottla_client import Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition
from ottla_client.deadline import Deadline
from ottla_client.errors import (
    ClientError,
    ClosedError,
    ConfigurationError,
    PollIntervalExceededError,
    UnknownTopicError,
)
from ottla_protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

New = Callable[..., Any]


async def committed(new_consumer: New, group: str, *partitions: TopicPartition) -> list[int | None]:
    """The group's offsets, read from outside."""
    other = await new_consumer(group_id=group)
    found = await other.committed(*partitions)
    await other.close()
    return [each and each.offset for each in found.values()]


async def test_a_group_continues_at_its_offsets(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(), new_name("group")
    put(broker, topic, numbered(100))
    first = await new_consumer(topic, group_id=group)
    assert offsets(await take(first, 30)) == list(range(30))
    await first.close()
    second = await new_consumer(topic, group_id=group)
    assert offsets(await take(second, 70)) == list(range(30, 100))


async def _read_until(consumer: Consumer, offset: int, *, fail: bool = False) -> None:
    async with consumer:
        async for record in consumer:
            if record.offset == offset:
                if fail:
                    raise ZeroDivisionError
                break


async def test_close_commits_what_was_handed_out_one_by_one(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(), new_name("group")
    put(broker, topic, numbered(100))
    await _read_until(Consumer(topic, bootstrap_servers=broker.bootstrap, group_id=group, **QUICK), 41)
    assert await committed(new_consumer, group, tp(topic)) == [42]


async def test_a_record_that_fails_is_not_committed(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(), new_name("group")
    put(broker, topic, numbered(100))
    consumer = Consumer(topic, bootstrap_servers=broker.bootstrap, group_id=group, **QUICK)
    with pytest.raises(ZeroDivisionError):
        await _read_until(consumer, 41, fail=True)
    assert await committed(new_consumer, group, tp(topic)) == [41]


async def test_automatic_commits(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(), new_name("group")
    put(broker, topic, numbered(100))
    consumer = await new_consumer(topic, group_id=group, auto_commit_interval_ms=50)
    assert len(await take(consumer, 10)) == 10
    await asyncio.sleep(0.3)
    # The application may still be processing these.
    assert (await consumer.committed())[tp(topic)].offset == 0
    assert len(await take(consumer, 10)) == 10
    async with asyncio.timeout(60):
        while await consumer.committed(tp(topic)) != {tp(topic): OffsetAndMetadata(10, "", 0)}:
            await asyncio.sleep(0.02)


async def test_an_automatic_commit_takes_no_explicit_one_back(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    """The application has committed the records that it is processing, and its exception closes the consumer."""
    topic, group = new_topic(), new_name("group")
    put(broker, topic, numbered(100))
    consumer = await new_consumer(topic, group_id=group)
    assert len(await take(consumer, 10)) == 10
    await consumer.commit()
    await consumer.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert await committed(new_consumer, group, tp(topic)) == [10]


@pytest.mark.parametrize("sought", [False, True])
async def test_the_first_position_is_committed_without_a_record(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New, sought: bool
) -> None:
    """Records that come while no member reads are for the next member, although it starts at the end, too."""
    topic, group = new_topic(), new_name("group")
    put(broker, topic, numbered(10))
    first = await new_consumer(topic, group_id=group, auto_offset_reset="latest")
    assert await first.poll(100) == []
    await until(lambda: first.assignment() == {tp(topic)})
    assert await first.position(tp(topic)) == 10
    if sought:
        first.seek(tp(topic), 7)
    await first.close()
    put(broker, topic, numbered(1))
    second = await new_consumer(topic, group_id=group, auto_offset_reset="latest")
    assert offsets(await take(second, 4 if sought else 1)) == ([7, 8, 9, 10] if sought else [10])


async def test_explicit_commits(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(2), new_name("group")
    put(broker, topic, numbered(100))
    consumer = await new_consumer(topic, group_id=group, enable_auto_commit=False)
    async for record in consumer:
        if record.offset == 7:
            await consumer.commit()
            break
    assert (await consumer.committed(tp(topic)))[tp(topic)].offset == 8
    await consumer.commit({tp(topic): 50, tp(topic, 1): OffsetAndMetadata(0, "note")})
    found = await consumer.committed(tp(topic), tp(topic, 1))
    assert [each.offset for each in found.values()] == [50, 0]
    assert found[tp(topic, 1)].metadata == "note"
    await consumer.close()
    assert await committed(new_consumer, group, tp(topic)) == [50]


async def test_assigned_partitions_use_the_groups_offsets(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic, group = new_topic(), new_name("group")
    put(broker, topic, numbered(20))
    first = await new_consumer(group_id=group)
    first.assign([tp(topic)])
    assert len(await take(first, 5)) == 5
    await first.close()
    second = await new_consumer(group_id=group)
    second.assign([tp(topic)])
    assert offsets(await take(second, 15)) == list(range(5, 20))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_partitions_are_shared_and_no_record_is_lost_or_doubled(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New, strategy: str
) -> None:
    topic, group = new_topic(4), new_name("group")
    for partition in range(4):
        put(broker, topic, numbered(500), partition)
    options = {"group_id": group, "partition_assignment_strategy": (strategy,), "max_poll_records": 20}
    seen: list[tuple[int, int]] = []

    async def work(consumer: Any, until_seen: int) -> None:
        while len(seen) < until_seen:
            seen.extend((record.partition, record.offset) for record in await consumer.poll(100))
            await asyncio.sleep(0.002)

    async with asyncio.timeout(60):
        first = await new_consumer(topic, **options)
        await work(first, 300)
        second = await new_consumer(topic, **options)
        await asyncio.gather(work(first, 1_200), work(second, 1_200))
        assert first.assignment()
        await first.close()
        await work(second, 2_000)
    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(500)]
    assert len(second.assignment()) == 4


async def test_a_rebalance_waits_for_the_application(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    """Records in process when another member joins are finished and committed before partitions move."""
    topic, group = new_topic(2), new_name("group")
    for partition in range(2):
        put(broker, topic, numbered(50), partition)
    first = await new_consumer(topic, group_id=group, heartbeat_interval_ms=50)
    at_work = await first.getone()
    second = await new_consumer(topic, group_id=group, heartbeat_interval_ms=50)
    waiting = asyncio.create_task(second.getone())
    await asyncio.sleep(0.4)
    assert not second.assignment()
    assert at_work.topic_partition in first.assignment()
    seen = [at_work]
    async with asyncio.timeout(60):
        while len(first.assignment()) != 1 or not waiting.done():
            seen += await first.poll(50, 1)
    seen.append(waiting.result())
    seen += await take(first, 50 - sum(record.partition == _only(first) for record in seen))
    seen += await take(second, 100 - len(seen))
    assert sorted((record.partition, record.offset) for record in seen) == [
        (partition, offset) for partition in range(2) for offset in range(50)
    ]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_close_without_a_commit_commits_nothing_in_a_rebalance_that_waits(strategy: str) -> None:
    """The application may be processing its records, so the rebalance must not commit them when the gate opens."""
    fake = FakeGroup(1, lambda partition, offset: None)
    await fake.start()
    try:
        consumer = Consumer(
            "t",
            bootstrap_servers=fake.bootstrap,
            group_id="g",
            partition_assignment_strategy=[strategy],
            heartbeat_interval_ms=10,
            auto_commit_interval_ms=60_000,
            **QUICK,
        )
        await consumer.start()
        assert len(await take(consumer, 3)) == 3
        # The first automatic commit is due at once, the next much later.
        await until(lambda: bool(fake.committed))
        commits = fake.asked[ApiKey.OFFSET_COMMIT]
        engine = consumer._engine
        fake.rebalance(set())
        await until(lambda: not engine.gate.open)
        consumer._closed_properly = True
        await engine.close(Deadline(30), commit=False)
        assert fake.asked[ApiKey.OFFSET_COMMIT] == commits
    finally:
        await fake.stop()
    assert not client_tasks()


def _only(consumer: Any) -> int:
    (partition,) = consumer.assignment()
    number: int = partition.partition
    return number


class Recorder(RebalanceListener):
    """Records the calls; ``at`` is the offset to seek to."""

    def __init__(self, at: int | None = None) -> None:
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []
        self.at = at
        self.consumer: Any = None

    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))
        positions = [await self.consumer.position(each) for each in revoked]
        await self.consumer.commit(dict(zip(revoked, positions, strict=True)))

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        self.calls.append(("assigned", assigned))
        for partition in assigned if self.at is not None else ():
            self.consumer.seek(partition, self.at)


async def test_listeners(broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New) -> None:
    topic, group = new_topic(2), new_name("group")
    for partition in range(2):
        put(broker, topic, numbered(20), partition)
    recorder = Recorder(at=15)
    first = recorder.consumer = await new_consumer(
        group_id=group, enable_auto_commit=False, heartbeat_interval_ms=50
    )
    first.subscribe([topic], listener=recorder)
    records = await take(first, 10)
    assert sorted(offsets(records)) == sorted([*range(15, 20)] * 2)
    both = frozenset({tp(topic, 0), tp(topic, 1)})
    assert recorder.calls == [("assigned", both)]
    recorder.at = None
    second = await new_consumer(topic, group_id=group, heartbeat_interval_ms=50)
    await assigned([first, second], 2)
    assert recorder.calls[1] == ("revoked", both)
    assert recorder.calls[2] == ("assigned", first.assignment())
    assert await second.poll(100) == []  # the listener's commit counts
    first.unsubscribe()
    assert first.assignment() == frozenset()
    await assigned([second], 2)


async def test_new_partitions_are_read_when_the_listener_returns(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    """Also those whose position the listener asks for, or that it seeks."""
    called, go_on = asyncio.Event(), asyncio.Event()

    class Slow(RebalanceListener):
        async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            assert await consumer.position(tp(topic, 0)) == 0
            consumer.seek(tp(topic, 1), 5)
            called.set()
            await go_on.wait()
            consumer.seek(tp(topic, 0), 8)

    topic = new_topic(2)
    for partition in range(2):
        put(broker, topic, numbered(10), partition)
    consumer = await new_consumer(group_id=new_name("group"))
    consumer.subscribe([topic], listener=Slow())
    async with asyncio.timeout(60):
        await called.wait()
    assert await consumer.poll(500) == []
    go_on.set()
    records = await take(consumer, 7)
    assert sorted((record.partition, record.offset) for record in records) == [
        *((0, offset) for offset in range(8, 10)),
        *((1, offset) for offset in range(5, 10)),
    ]


async def test_listeners_use_the_consumer_while_it_is_closed(
    broker: BrokerProcess,
    new_topic: New,
    new_name: New,
    new_consumer: New,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A close that comes during a callback waits for it, and then the listener gives the partitions up."""
    called, go_on = asyncio.Event(), asyncio.Event()

    class Committer(RebalanceListener):
        async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            called.set()
            await go_on.wait()
            assert await consumer.position(tp(topic)) == 10

        async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
            await consumer.commit({tp(topic): 4})

    topic, group = new_topic(), new_name("group")
    put(broker, topic, numbered(10))
    consumer = await new_consumer(group_id=group, enable_auto_commit=False, auto_offset_reset="latest")
    consumer.subscribe([topic], listener=Committer())
    async with asyncio.timeout(60):
        await called.wait()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            await consumer.getone()
        go_on.set()
        await closing
    assert not caplog.records
    assert await committed(new_consumer, group, tp(topic)) == [4]
    with pytest.raises(ClosedError):
        await consumer.commit({tp(topic): 5})


async def test_a_listener_that_raises(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    class Broken(RebalanceListener):
        def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            raise ZeroDivisionError("in the listener")

    topic = new_topic()
    put(broker, topic, numbered(5))
    consumer = await new_consumer(group_id=new_name("group"))
    consumer.subscribe([topic], listener=Broken())
    with pytest.raises(ClientError, match="in the listener"):
        await take(consumer, 1)
    assert len(await take(consumer, 5)) == 5


async def test_listeners_need_a_group(new_consumer: New) -> None:
    consumer = await new_consumer()
    with pytest.raises(ConfigurationError, match="group_id"):
        consumer.subscribe(["t"], listener=RebalanceListener())
    grouped = await new_consumer(group_id="g")
    with pytest.raises(ConfigurationError, match="RebalanceListener"):
        grouped.subscribe(["t"], listener=object())


async def test_a_stall_is_raised_once_and_then_the_member_joins_again(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic = new_topic()
    put(broker, topic, numbered(10))
    consumer = await new_consumer(
        topic,
        group_id=new_name("group"),
        max_poll_interval_ms=600,
        session_timeout_ms=2_000,
        heartbeat_interval_ms=100,
    )
    assert (await consumer.getone()).offset == 0
    await until(lambda: not consumer.assignment())
    with pytest.raises(PollIntervalExceededError):
        await consumer.getone()
    # The records in process were not committed, so they come again.
    assert offsets(await take(consumer, 10)) == list(range(10))


async def test_taking_one_by_one_and_waiting_are_no_stall(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    topic = new_topic()
    put(broker, topic, numbered(10))
    consumer = await new_consumer(
        topic,
        group_id=new_name("group"),
        max_poll_interval_ms=1_500,
        session_timeout_ms=10_000,
        heartbeat_interval_ms=100,
    )
    async for record in consumer:
        await asyncio.sleep(0.2)
        if record.offset == 9:
            break
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(consumer.getone(), 2.0)
    put(broker, topic, [b"still there"])
    assert (await consumer.getone()).value == b"still there"


async def test_a_member_finds_new_topics_of_its_pattern(
    broker: BrokerProcess, new_name: New, new_consumer: New
) -> None:
    prefix = new_name("member")
    consumer = await new_consumer(group_id=new_name("group"), metadata_max_age_ms=200)
    consumer.subscribe(pattern=f"{prefix}-.*")
    assert await consumer.poll(300) == []
    create_topic(broker, f"{prefix}-a", 2)
    put(broker, f"{prefix}-a", numbered(3), 1)
    assert len(await take(consumer, 3)) == 3
    assert len(consumer.assignment()) == 2


@pytest.mark.parametrize("name", ["close", "commit", "committed", "poll"])
async def test_cancelled_at_every_await_a_member_leaves_nothing(
    broker: BrokerProcess, new_topic: New, new_name: New, name: str
) -> None:
    topic = new_topic()
    put(broker, topic, numbered(10))
    place = 0
    while True:
        # A member that could not leave stays in its group for a while.
        consumer = Consumer(topic, bootstrap_servers=broker.bootstrap, group_id=new_name("group"), **QUICK)
        await consumer.start()
        if name != "poll":
            await take(consumer, 1)
        call = consumer.poll(50) if name == "poll" else getattr(consumer, name)()
        run = CancelAt(call, place)

        async def drive(run: CancelAt = run) -> None:
            await run

        task = asyncio.ensure_future(drive())
        await asyncio.wait((task,), timeout=60)
        assert task.done()
        await consumer.close()
        await until(lambda: not client_tasks())
        if run.waits <= place:
            break
        place += 1


async def test_a_topic_that_is_deleted_under_a_member(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    gone, stays = new_topic(), new_topic()
    put(broker, gone, numbered(3))
    consumer = await new_consumer(gone, stays, group_id=new_name("group"), heartbeat_interval_ms=100)
    assert len(await take(consumer, 3)) == 3
    delete_topic(broker, gone)
    with pytest.raises(UnknownTopicError, match=f"'{gone}' has been deleted"):
        await take(consumer, 1)
    put(broker, stays, numbered(2))
    assert {record.topic for record in await take(consumer, 2)} == {stays}
    create_topic(broker, gone)
    put(broker, gone, [b"again"])
    assert [record.value for record in await take(consumer, 1)] == [b"again"]
