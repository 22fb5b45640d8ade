"""A client that asks for no versions sends the message formats and requests of the broker that it is configured for."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka as ck
import pytest
from tests.clients.kits import DEADLINE_S
from tests.clients.transactional import read_confluent
from tests.support.processes import BrokerProcess


@pytest.mark.not_kafka_4
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_librdkafka_for_an_old_broker(
    codec: str, broker: BrokerProcess, new_topic: Callable[..., str], new_name: Callable[..., str]
) -> None:
    topic = new_topic()
    old = {
        "bootstrap.servers": broker.bootstrap,
        "api.version.request": False,
        "broker.version.fallback": "0.9.0.1",
    }
    producer = ck.Producer({**old, "compression.type": codec, "linger.ms": 50})
    values = [b"%d" % number for number in range(100)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0
    assert read_confluent(broker.bootstrap, topic) == values
    consumer = ck.Consumer(
        {**old, "group.id": new_name("group"), "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < len(values):
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"{len(found)} records in time"
        assert message.error() is None, message.error()
        found.append(message.value())
    assert found == values
    consumer.commit(asynchronous=False)
    consumer.close()
