"""What consumers get of transactions, in every way of reading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.support.processes import BrokerProcess

from ottla_client import Admin, Consumer, Producer, TopicPartition
from ottla_client.errors import CommitFailedError

NewTopic = Callable[..., str]
NewName = Callable[..., str]

pytestmark = pytest.mark.usefixtures("transactions")

READ = ("iterate", "getone", "poll", "getmany", "poll_arrow")


async def take(consumer: Consumer, how: str, count: int) -> list[bytes]:
    """``count`` values."""
    values: list[bytes] = []
    if how == "iterate":
        async for record in consumer:
            values.append(record.value)
            if len(values) == count:
                break
        return values
    while len(values) < count:
        if how == "getone":
            values.append((await consumer.getone()).value)
        elif how == "poll":
            values += [record.value for record in await consumer.poll()]
        elif how == "getmany":
            for records in (await consumer.getmany(timeout_ms=1_000, max_records=7)).values():
                values += [record.value for record in records]
        else:
            values += (await consumer.poll_arrow(max_records=7))["value"].to_pylist()
    return values


def reader(broker: BrokerProcess, topic: str, isolation: str, **options: Any) -> Consumer:
    return Consumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level=isolation,
        fetch_max_wait_ms=50,
        **options,
    )


async def write(broker: BrokerProcess, topic: str, name: str) -> tuple[list[bytes], list[bytes]]:
    """Interleaved transactions and plain records; gives all values, and those of no aborted transaction."""
    random = Random(7)
    written: list[tuple[str, bytes]] = []
    aborted: set[str] = set()
    async with (
        Producer(broker.bootstrap, transactional_id=f"{name}-a", linger_ms=0) as first,
        Producer(broker.bootstrap, transactional_id=f"{name}-b", linger_ms=0) as second,
        Producer(broker.bootstrap, linger_ms=0) as plain,
    ):
        running: dict[Producer, str] = {}
        for number in range(120):
            producer = random.choice((first, second, plain))
            value = b"%d" % number
            if producer is plain:
                written.append(("", value))
                await producer.send_and_wait(topic, value)
                continue
            if producer not in running:
                await producer.begin_transaction()
                running[producer] = f"{number}"
            written.append((running[producer], value))
            await producer.send_and_wait(topic, value)
            if random.random() < 0.3:
                if random.random() < 0.5:
                    aborted.add(running.pop(producer))
                    await producer.abort_transaction()
                else:
                    del running[producer]
                    await producer.commit_transaction()
        for producer in running:
            await producer.commit_transaction()
    assert len(aborted) > 3
    return [value for _, value in written], [value for its, value in written if its not in aborted]


@pytest.mark.parametrize("how", READ)
async def test_aborted_records_are_left_out(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, how: str
) -> None:
    topic = new_topic()
    every, committed = await write(broker, topic, new_name("txn"))
    async with reader(broker, topic, "read_committed") as consumer:
        assert await take(consumer, how, len(committed)) == committed
    async with reader(broker, topic, "read_uncommitted") as consumer:
        assert await take(consumer, how, len(every)) == every


@pytest.mark.parametrize("how", READ)
async def test_nothing_of_an_open_transaction(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, how: str
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    async with (
        Producer(broker.bootstrap, transactional_id=new_name("txn"), linger_ms=0) as producer,
        Producer(broker.bootstrap, linger_ms=0) as plain,
        reader(broker, topic, "read_committed") as consumer,
    ):
        await plain.send_and_wait(topic, b"before")
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open")
        await plain.send_and_wait(topic, b"behind")
        assert await take(consumer, how, 1) == [b"before"]
        assert await consumer.poll(200) == []
        assert await consumer.end_offsets([partition]) == {partition: 1}
        assert consumer.lag(partition) == 0
        await producer.commit_transaction()
        assert await take(consumer, how, 2) == [b"open", b"behind"]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("how", READ)
async def test_positions_pass_markers_and_aborted_records(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, how: str, isolation: str
) -> None:
    topic, group = new_topic(), new_name("group")
    partition = TopicPartition(topic, 0)
    async with Producer(broker.bootstrap, transactional_id=new_name("txn"), linger_ms=0) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"committed")
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted")
        await producer.abort_transaction()
    seen = 1 if isolation == "read_committed" else 2
    async with (
        Admin(broker.bootstrap) as admin,
        reader(broker, topic, isolation, group_id=group, enable_auto_commit=False) as consumer,
    ):
        assert len(await take(consumer, how, seen)) == seen
        if how == "poll_arrow":
            assert (await consumer.poll_arrow(timeout_ms=300)).num_rows == 0
        else:
            assert await consumer.poll(300) == []
        assert await consumer.position(partition) == 4
        assert consumer.lag(partition) == 0
        await consumer.commit()
        committed = await consumer.committed(partition)
        assert committed[partition] is not None
        assert committed[partition].offset == 4
        assert [each.records for each in (await admin.group_lag(group)).values()] == [0]


async def test_a_consumer_that_waits_commits_past_markers(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName
) -> None:
    topic, group = new_topic(), new_name("group")
    options = {"group_id": group, "auto_commit_interval_ms": 50}
    async with (
        Admin(broker.bootstrap) as admin,
        Producer(broker.bootstrap, transactional_id=new_name("txn"), linger_ms=0) as producer,
        reader(broker, topic, "read_uncommitted", **options) as consumer,
    ):
        async with producer.transaction():
            await producer.send_and_wait(topic, b"value")
            assert await take(consumer, "getone", 1) == [b"value"]
            waiting = asyncio.create_task(consumer.getone())
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            while [each.records for each in (await admin.group_lag(group)).values()] != [0]:
                await asyncio.sleep(0.02)
        assert not waiting.done()
        waiting.cancel()


async def test_a_seek_into_the_middle_of_transactions(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    _, committed = await write(broker, topic, new_name("txn"))
    async with reader(broker, topic, "read_committed") as consumer:
        records = []
        while len(records) < len(committed):
            records += await consumer.poll()
        for place in range(0, len(records), 9):
            consumer.seek(partition, records[place].offset)
            found = []
            while len(found) < len(records) - place:
                found += await consumer.poll()
            assert [each.offset for each in found] == [each.offset for each in records[place:]]


async def test_offsets_of_a_consumer_without_an_assignment(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName
) -> None:
    """An application that gets nothing while its group rebalances ends its transaction as any other."""
    topic = new_topic()
    async with (
        Producer(broker.bootstrap, transactional_id=new_name("txn"), linger_ms=0) as producer,
        reader(
            broker, topic, "read_committed", group_id=new_name("group"), enable_auto_commit=False
        ) as consumer,
    ):
        assert not consumer.assignment()
        assert await consumer.poll(0) == []
        async with producer.transaction() as transaction:
            await transaction.send_offsets(consumer)


async def test_partitions_that_go_amid_a_transaction(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName
) -> None:
    """Their new owner reads the records again, so a transaction without their offsets would double them."""
    topic, group = new_topic(partitions=2), new_name("group")
    options = {"group_id": group, "enable_auto_commit": False}
    async with (
        Producer(broker.bootstrap, linger_ms=0) as plain,
        Producer(broker.bootstrap, transactional_id=new_name("txn"), linger_ms=0) as producer,
        reader(broker, topic, "read_committed", **options) as first,
    ):
        for partition in (0, 1):
            await plain.send_and_wait(topic, b"record", partition=partition)
        await producer.begin_transaction()
        assert len(await take(first, "poll", 2)) == 2
        async with reader(broker, topic, "read_committed", **options) as second:
            reading = asyncio.create_task(take(second, "poll", 1))
            async with asyncio.timeout(60):
                while len(first.assignment()) != 1:
                    await first.poll(100)
            with pytest.raises(CommitFailedError, match="taken partitions away"):
                await producer.send_offsets_to_transaction(None, first)
            await producer.abort_transaction()
            assert await reading == [b"record"]
        await first.seek_to_committed()
        async with producer.transaction() as transaction:
            assert set(await take(first, "poll", 1)) == {b"record"}
            await transaction.send_offsets(first)
