"""librdkafka pushes its metrics (KIP-714), as `ottla configs client-metrics` asks for them."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka as ck
import pytest
from tests.cli.ottla_command import Ottla
from tests.support.metrics import LISTENER, Scraped, scrape
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for

PREFIX = "org_apache_kafka_producer_"


@pytest.mark.ottla_only
def test_librdkafka_pushes_its_metrics(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(settings=LISTENER)
    create_topic(broker, "t", 1)
    ottla = Ottla(broker.bootstrap)
    subscriptions = ("configs", "client-metrics")
    assert ottla.json(*subscriptions, "list") == []
    mine = ["--metrics", "org.apache.kafka.producer.", "--interval", "100", "--match", "client_id=mine"]
    ottla(*subscriptions, "alter", "producers", *mine)
    (found,) = ottla.json(*subscriptions, "list")
    assert found == {
        "name": "producers",
        "metrics": "org.apache.kafka.producer.",
        "interval": 100,
        "match": "client_id=mine",
    }
    assert "unknown subscription" in ottla.fails(*subscriptions, "describe", "producer")
    ottla.fails(*subscriptions, "alter", "producers", "--match", "host=a", code=2)
    ottla.fails(*subscriptions, "alter", "producers", code=2)
    producer = ck.Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "mine", "enable.metrics.push": True}
    )

    def pushed() -> Scraped | None:
        producer.produce("t", b"x")
        producer.poll(0)
        scraped = scrape(broker)
        return scraped if any(name.startswith(PREFIX) for name in scraped.samples) else None

    scraped = wait_for(pushed, "metrics that the client pushes", every=0.1)
    assert scraped is not None
    name = next(name for name in scraped.samples if name.startswith(PREFIX))
    labels = dict(next(iter(scraped.samples[name])))
    assert labels["client_id"] == "mine"
    assert labels["software"].startswith("confluent-kafka-python")
    producer.flush(60)
    ottla(*subscriptions, "delete", "producers", "--yes")
    assert ottla.json(*subscriptions, "list") == []
