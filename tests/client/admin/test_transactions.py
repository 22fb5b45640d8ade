"""Admin's calls for transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.support.processes import BrokerProcess
from tests.support.transactions import hang

from ottla_client import Admin, NewTopic, Producer, TopicPartition
from ottla_client.admin import HangingTransaction, PartialError
from ottla_client.errors import (
    BrokerError,
    ConfigurationError,
    ProducerFencedError,
    TransactionAbortedError,
)
from ottla_protocol.errors import ErrorCode

MakeTopic = Callable[..., str]
NewName = Callable[..., str]

pytestmark = pytest.mark.usefixtures("transactions")


async def test_list_and_describe(
    broker: BrokerProcess, admin: Admin, new_topic: MakeTopic, new_name: NewName
) -> None:
    topic, name = new_topic(2), new_name("txn")
    async with Producer(broker.bootstrap, transactional_id=name, transaction_timeout_ms=54_321) as producer:
        assert (await admin.list_transactions())[name].state == "Empty"
        await producer.begin_transaction()
        for partition in range(2):
            await producer.send_and_wait(topic, b"v", partition=partition)
        listed = (await admin.list_transactions(states=["Ongoing"]))[name]
        found = (await admin.describe_transactions([name]))[name]
        assert (found.transactional_id, found.state, found.timeout_ms) == (name, "Ongoing", 54_321)
        assert found.producer_id == listed.producer_id
        assert found.coordinator == listed.coordinator
        assert found.partitions == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        assert found.started_ms is not None
        assert name in await admin.list_transactions(producer_ids=[listed.producer_id])
        assert name not in await admin.list_transactions(producer_ids=[listed.producer_id + 1])
        assert name not in await admin.list_transactions(open_for_ms=3_600_000)
        await producer.commit_transaction()
        async with asyncio.timeout(60):
            while (await admin.list_transactions())[name].state != "CompleteCommit":
                await asyncio.sleep(0.02)
        found = (await admin.describe_transactions([name]))[name]
        assert found.partitions == frozenset()
        assert name not in await admin.list_transactions(states=["Ongoing"])


async def test_unknown_ids_and_states(admin: Admin, new_name: NewName) -> None:
    with pytest.raises(BrokerError, match="no producer has used this transactional id") as caught:
        await admin.describe_transactions(["not there"])
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    with pytest.raises(PartialError):
        await admin.describe_transactions(["not there", "neither"])
    for refused in (admin.describe_transactions(["there", ""]), admin.fence_producers([""])):
        with pytest.raises(ConfigurationError, match="it must be a name"):
            await refused
    with pytest.raises(ConfigurationError, match="'Ongiong'"):
        await admin.list_transactions(states=["Ongiong"])


async def test_fence_producers(
    broker: BrokerProcess, admin: Admin, new_topic: MakeTopic, new_name: NewName
) -> None:
    topic, name = new_topic(), new_name("txn")
    async with Producer(broker.bootstrap, transactional_id=name) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"v")
        before = (await admin.describe_transactions([name]))[name]
        fenced = (await admin.fence_producers([name]))[name]
        assert fenced.producer_id == before.producer_id
        assert fenced.epoch > before.producer_epoch
        # With version 2 it may also be that the time of its transaction was up. The abort finds out.
        with pytest.raises((ProducerFencedError, TransactionAbortedError)):
            await producer.commit_transaction()
        with pytest.raises(ProducerFencedError):
            await producer.abort_transaction()


async def test_a_hanging_transaction_is_found_and_aborted(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(settings={"transaction.partition.verification.enable": False})
    async with (
        Admin(broker.bootstrap) as admin,
        Producer(broker.bootstrap, transactional_id="running", linger_ms=0) as producer,
    ):
        await admin.create_topics([NewTopic("topic")])
        partition = TopicPartition("topic", 0)
        async with producer.transaction():
            await producer.send_and_wait("topic", b"committed")
        async with asyncio.timeout(60):
            while (await admin.list_offsets({partition: -1}))[partition].offset < 2:
                await asyncio.sleep(0.01)  # the marker
        producer_id = await hang(broker, "topic", "hanging")
        await producer.begin_transaction()
        await producer.send_and_wait("topic", b"open")
        assert await admin.find_hanging_transactions([partition]) == [], "not silent for long"
        await asyncio.sleep(0.01)
        (found,) = await admin.find_hanging_transactions([partition], max_timeout_ms=0)
        assert isinstance(found, HangingTransaction)
        assert (found.partition, found.transactional_id) == (partition, "hanging")
        assert found.producer.producer_id == producer_id
        assert found.producer.transaction_start_offset == 2
        await producer.abort_transaction()
        stable = await admin.list_offsets({partition: -1}, isolation_level="read_committed")
        assert stable[partition].offset == 2
        await admin.abort_transaction(
            partition,
            producer_id=producer_id,
            producer_epoch=found.producer.producer_epoch,
            coordinator_epoch=max(0, found.producer.coordinator_epoch),
        )
        assert await admin.find_hanging_transactions([partition], max_timeout_ms=0) == []
        async with asyncio.timeout(60):
            stable = await admin.list_offsets({partition: -1}, isolation_level="read_committed")
            while stable[partition].offset < 6:
                stable = await admin.list_offsets({partition: -1}, isolation_level="read_committed")
        with pytest.raises(BrokerError, match="INVALID_PRODUCER_EPOCH"):
            await admin.abort_transaction(
                partition, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0
            )


async def test_ids_that_are_not_used_expire(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(
        settings={
            "producer.id.expiration.ms": 1,
            "producer.id.expiration.check.interval.ms": 50,
            "transactional.id.expiration.ms": 1,
            "transaction.remove.expired.transaction.cleanup.interval.ms": 50,
        }
    )
    partition = TopicPartition("topic", 0)
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        await admin.create_topics([NewTopic("topic")])
        await producer.send_and_wait("topic", b"value")
        before = (await admin.fence_producers(["unused"]))["unused"]
        async with asyncio.timeout(60):
            while await admin.list_transactions():
                await asyncio.sleep(0.02)
            while (await admin.describe_producers([partition]))[partition]:
                await asyncio.sleep(0.02)
        after = (await admin.fence_producers(["unused"]))["unused"]
        assert (after.producer_id > before.producer_id, after.epoch) == (True, 0)
