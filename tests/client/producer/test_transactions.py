"""Transactions on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.producer.conftest import NewProducer
from tests.support.processes import BrokerProcess
from tests.support.transactions import wait_until_settled

from ottla_client import Admin, Consumer, OffsetAndMetadata, TopicPartition
from ottla_client.errors import (
    ClientError,
    CommitFailedError,
    ConfigurationError,
    DeliveryTimeoutError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
)

NewTopic = Callable[..., str]
NewName = Callable[..., str]

pytestmark = pytest.mark.usefixtures("transactions")


async def read(broker: BrokerProcess, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """The records of ended transactions, or all with read_uncommitted, in order within partitions."""
    await asyncio.to_thread(wait_until_settled, broker.bootstrap, topic)
    return await read_now(broker, topic, isolation)


async def read_now(broker: BrokerProcess, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """The same, up to the present end: the markers of an ended transaction may not have come yet."""
    async with Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level=isolation
    ) as consumer:
        partitions = [TopicPartition(topic, each) for each in await consumer.partitions_for(topic)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        values = []
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            values += [record.value for record in await consumer.poll(100)]
        return values


async def test_a_block_commits(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    topic = new_topic(3)
    async with new_producer(broker.bootstrap, transactional_id=new_name("txn")) as producer:
        for number in range(5):
            async with producer.transaction():
                for partition in range(3):
                    await producer.send(topic, b"%d-%d" % (partition, number), partition=partition)
                await producer.send_batch(topic, [b"1-%d" % number] * 3, partition=1)
    expected = [b"%d-%d" % (partition, number) for number in range(5) for partition in (0, 1, 1, 1, 1, 2)]
    assert sorted(await read(broker, topic)) == sorted(expected)


async def test_an_exception_aborts(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    topic = new_topic()
    async with new_producer(broker.bootstrap, transactional_id=new_name("txn")) as producer:
        unsent = []

        async def fail() -> None:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"aborted")
                unsent.append(await producer.send(topic, b"dropped"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        with pytest.raises(TransactionAbortedError):
            await unsent[0]
        async with producer.transaction():
            await producer.send(topic, b"committed")
    assert await read(broker, topic) == [b"committed"]
    assert await read(broker, topic, "read_uncommitted") == [b"aborted", b"committed"]


async def test_readers_see_nothing_before_the_commit(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    topic = new_topic()
    async with (
        new_producer(broker.bootstrap, transactional_id=new_name("txn")) as producer,
        producer.transaction() as transaction,
    ):
        await producer.send_and_wait(topic, b"value")
        assert await read_now(broker, topic) == []
        await transaction.commit()
        assert await read(broker, topic) == [b"value"]


async def test_begin_commit_and_abort_by_name(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    topic = new_topic()
    async with new_producer(broker.bootstrap, transactional_id=new_name("txn")) as producer:
        with pytest.raises(TransactionStateError, match="no transaction is open"):
            await producer.send(topic, b"outside")
        with pytest.raises(TransactionStateError):
            await producer.commit_transaction()
        with pytest.raises(TransactionStateError):
            await producer.abort_transaction()
        await producer.begin_transaction()
        with pytest.raises(TransactionStateError, match="one at a time"):
            await producer.begin_transaction()
        await producer.send(topic, b"one")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.commit_transaction()  # an empty one
        await producer.begin_transaction()
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"two")
        await producer.abort_transaction()
        with pytest.raises(TransactionStateError):
            await producer.send(topic, b"after")
    assert await read(broker, topic) == [b"one"]


async def test_a_newer_producer_fences(
    request: pytest.FixtureRequest,
    broker: BrokerProcess,
    new_topic: NewTopic,
    new_producer: NewProducer,
    new_name: NewName,
) -> None:
    topic, name = new_topic(), new_name("txn")
    async with new_producer(broker.bootstrap, transactional_id=name) as old:
        await old.begin_transaction()
        await old.send_and_wait(topic, b"of the old one")
        async with new_producer(broker.bootstrap, transactional_id=name) as new:
            async with new.transaction():
                await new.send(topic, b"of the new one")
            if request.config.getoption("--kafka") == "3":
                with pytest.raises(ProducerFencedError, match="another producer"):
                    await old.commit_transaction()
            else:
                # With version 2 it may also be that the time of its transaction was up. The abort finds out.
                with pytest.raises(TransactionAbortedError, match="another producer") as failed:
                    await old.commit_transaction()
                assert isinstance(failed.value.__cause__, ProducerFencedError)
                with pytest.raises(ProducerFencedError, match="another producer"):
                    await old.abort_transaction()
            with pytest.raises(ProducerFencedError):
                await old.begin_transaction()
    assert await read(broker, topic) == [b"of the new one"]


async def test_close_aborts(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    topic = new_topic()
    producer = new_producer(broker.bootstrap, transactional_id=new_name("txn"))
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"open")
    await producer.close()
    assert await read(broker, topic) == []
    async with Consumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed") as consumer:
        end = await consumer.end_offsets([TopicPartition(topic, 0)])
    assert end == {TopicPartition(topic, 0): 2}, "the record and the marker"


async def test_a_record_that_fails_fails_the_transaction(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    topic, compacted = new_topic(), new_topic(**{"cleanup.policy": "compact"})
    async with new_producer(broker.bootstrap, transactional_id=new_name("txn"), linger_ms=0) as producer:

        async def fail() -> None:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"good")
                await producer.send(compacted, b"without a key")

        with pytest.raises(TransactionAbortedError, match="INVALID_RECORD") as caught:
            await fail()
        assert caught.value.__cause__ is not None
        async with producer.transaction():
            await producer.send(topic, b"next")
            await producer.send(compacted, b"with a key", b"key")
    assert await read(broker, topic) == [b"next"]
    assert await read(broker, compacted) == [b"with a key"]


async def test_sends_after_a_failure_raise(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    topic, compacted = new_topic(), new_topic(**{"cleanup.policy": "compact"})
    async with new_producer(broker.bootstrap, transactional_id=new_name("txn"), linger_ms=0) as producer:
        await producer.begin_transaction()
        delivery = await producer.send(compacted, b"without a key")
        with pytest.raises(ClientError):
            await delivery
        for _ in range(2):
            with pytest.raises(TransactionAbortedError, match="must be aborted"):
                await producer.send(topic, b"more")
            with pytest.raises(TransactionAbortedError, match="must be aborted"):
                await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"next")
    assert await read(broker, topic) == [b"next"]


async def test_consume_transform_produce(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    source, target, group = new_topic(2), new_topic(2), new_name("group")
    async with new_producer(broker.bootstrap) as filling:
        for number in range(100):
            await filling.send(source, b"%d" % number, b"%d" % number)
    async with (
        new_producer(broker.bootstrap, transactional_id=new_name("txn")) as producer,
        Consumer(
            source,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=17,
        ) as consumer,
    ):
        seen = turns = 0
        while seen < 100:
            records = await consumer.poll(None)
            turns += 1
            try:
                async with producer.transaction() as transaction:
                    for record in records:
                        await producer.send(target, record.value, record.key)
                    await transaction.send_offsets(consumer)
                    if turns % 3 == 0:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                await consumer.seek_to_committed()
            else:
                seen += len(records)
        assert await consumer.poll(200) == []
        committed = await consumer.committed(*consumer.assignment())
        positions = {each: await consumer.position(each) for each in consumer.assignment()}
        assert {each: its and its.offset for each, its in committed.items()} == positions
    assert sorted(await read(broker, target), key=int) == [b"%d" % number for number in range(100)]


async def test_offsets_of_a_group_without_members(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    topic, group = new_topic(), new_name("group")
    partition = TopicPartition(topic, 0)
    async with (
        Admin(broker.bootstrap) as admin,
        new_producer(broker.bootstrap, transactional_id=new_name("txn")) as producer,
    ):
        async with producer.transaction() as transaction:
            await transaction.send_offsets(group, {partition: 7})
            assert await admin.list_group_offsets(group) == {}
        assert await admin.list_group_offsets(group, [partition], require_stable=True) == {
            partition: OffsetAndMetadata(7)
        }
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({partition: OffsetAndMetadata(8, "text")}, group)
        await producer.abort_transaction()
        assert await admin.list_group_offsets(group, [partition], require_stable=True) == {
            partition: OffsetAndMetadata(7)
        }
        async with producer.transaction() as transaction:
            with pytest.raises(ConfigurationError, match="give the offsets"):
                await transaction.send_offsets(group)
            with pytest.raises(ConfigurationError, match="can't be committed"):
                await transaction.send_offsets(group, {partition: -1})


async def test_offsets_of_a_member_that_has_lost_its_partitions(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    topic, group = new_topic(), new_name("group")
    async with (
        new_producer(broker.bootstrap, transactional_id=new_name("txn")) as producer,
        Consumer(
            topic, bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
        ) as consumer,
    ):
        while not consumer.assignment():
            await consumer.poll(50)
        metadata = consumer.group_metadata()
        assert metadata.group_id == group
        assert metadata.generation_id > 0
        stale = metadata._replace(generation_id=metadata.generation_id - 1)

        async def fail() -> None:
            async with producer.transaction() as transaction:
                await producer.send(topic, b"value")
                await transaction.send_offsets(stale, {TopicPartition(topic, 0): 0})

        with pytest.raises(CommitFailedError, match="ILLEGAL_GENERATION"):
            await fail()
        async with producer.transaction() as transaction:
            await producer.send(topic, b"again")
            await transaction.send_offsets(metadata, {TopicPartition(topic, 0): 0})
    assert await read(broker, topic) == [b"again"]


async def test_a_consumer_that_commits_by_itself_is_refused(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    topic = new_topic()
    async with (
        new_producer(broker.bootstrap, transactional_id=new_name("txn")) as producer,
        Consumer(topic, bootstrap_servers=broker.bootstrap, group_id=new_name("group")) as consumer,
    ):
        with pytest.raises(ConfigurationError, match="enable_auto_commit=False"):
            async with producer.transaction() as transaction:
                await transaction.send_offsets(consumer)


async def test_a_cancelled_block_aborts(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, new_name: NewName
) -> None:
    topic = new_topic()
    async with new_producer(broker.bootstrap, transactional_id=new_name("txn")) as producer:
        inside = asyncio.Event()

        async def work() -> None:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"cancelled")
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction():
            await producer.send(topic, b"next")
    assert await read(broker, topic) == [b"next"]


async def test_a_transaction_that_takes_too_long(
    request: pytest.FixtureRequest, own_broker: Callable[..., BrokerProcess], new_producer: NewProducer
) -> None:
    """The producer goes on with transaction version 2; before it, which Kafka 3.9 has, it is fenced."""
    broker = own_broker(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100})
    async with new_producer(
        broker.bootstrap, transactional_id="slow", transaction_timeout_ms=300
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("topic", b"value")
        async with Consumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed") as consumer:
            async with asyncio.timeout(60):
                partition = TopicPartition("topic", 0)
                while (await consumer.end_offsets([partition]))[partition] < 2:
                    await asyncio.sleep(0.05)
        if request.config.getoption("--kafka") == "3":
            with pytest.raises(ProducerFencedError, match="transaction_timeout_ms"):
                await producer.commit_transaction()
            return
        with pytest.raises(TransactionAbortedError, match="transaction_timeout_ms"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("topic", b"next")


async def test_a_timeout_that_the_broker_refuses(
    broker: BrokerProcess, new_producer: NewProducer, new_name: NewName
) -> None:
    producer = new_producer(
        broker.bootstrap, transactional_id=new_name("txn"), transaction_timeout_ms=2**31 - 1
    )
    with pytest.raises(ConfigurationError, match=r"transaction\.max\.timeout\.ms"):
        await producer.start()


async def test_records_that_expire_fail_the_transaction(
    own_broker: Callable[..., BrokerProcess], new_producer: NewProducer
) -> None:
    broker = own_broker()
    async with new_producer(
        broker.bootstrap,
        transactional_id="expiring",
        linger_ms=0,
        request_timeout_ms=500,
        delivery_timeout_ms=1_000,
    ) as producer:
        async with producer.transaction():
            await producer.send_and_wait("topic", b"before")
        await producer.begin_transaction()
        await producer.send_and_wait("topic", b"aborted")
        port = broker.port
        broker.kill()
        delivery = await producer.send("topic", b"lost")
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        with pytest.raises(TransactionAbortedError):
            await producer.commit_transaction()
        own_broker(folder=broker.folder, port=port)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("topic", b"after")
    assert await read(broker, "topic") == [b"before", b"after"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acks": 1}, "idempotent"),
        ({"enable_idempotence": False}, "idempotent"),
        ({"max_in_flight_requests_per_connection": 6}, "idempotent"),
        ({"transactional_id": ""}, "must be a name"),
        ({"transaction_timeout_ms": 0}, "at least 1"),
        ({"transaction_timeout_ms": 2**31}, "below 2"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    from ottla_client import Producer

    with pytest.raises(ConfigurationError, match=message):
        Producer(**{"transactional_id": "t", **options})
