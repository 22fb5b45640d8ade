"""Transactions are not supported yet: clients get an error at once instead of waiting for a coordinator."""

from __future__ import annotations

import asyncio
import time

import aiokafka
import confluent_kafka as ck
import pytest
from tests.clients.kits import kafka
from tests.support.processes import BrokerProcess


@pytest.fixture(autouse=True)
def _not_with_kafka(is_kafka: bool) -> None:
    if is_kafka:
        pytest.skip("Kafka has transactions")


def test_confluent_is_refused(broker: BrokerProcess) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t1"})
    began = time.monotonic()
    with pytest.raises(ck.KafkaException) as caught:
        producer.init_transactions(20)
    assert time.monotonic() - began < 10
    assert not caught.value.args[0].retriable()


def test_kafka_python_is_refused(broker: BrokerProcess) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        transactional_id="t1",
        max_block_ms=20_000,
        request_timeout_ms=10_000,
    )
    try:
        began = time.monotonic()
        with pytest.raises(kafka.errors.KafkaError):
            producer.init_transactions()
        assert time.monotonic() - began < 10
    finally:
        producer.close(timeout=1)


def test_aiokafka_is_refused(broker: BrokerProcess) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="t1")
        with pytest.raises(aiokafka.errors.KafkaError):
            await asyncio.wait_for(producer.start(), 10)
        await producer.stop()

    asyncio.run(run())
