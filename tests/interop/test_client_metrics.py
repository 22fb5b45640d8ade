"""A Java producer pushes its metrics (KIP-714) to an Ottla broker, which shows them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.interop.support import Java
from tests.support.metrics import LISTENER, scrape
from tests.support.processes import BrokerProcess

PREFIX = "org_apache_kafka_producer_"


def test_a_java_producer_pushes_its_metrics(java: Java, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", {**LISTENER, "group.initial.rebalance.delay.ms": 0}).start()
    try:
        there = replace(java, address=broker.bootstrap)
        wanted = ["--metrics", "org.apache.kafka.producer.", "--interval", "100"]
        there.tool("client-metrics", "--alter", "--name", "producers", *wanted)
        there.tool("topics", "--create", "--topic", "t")
        slowly = ["--topic", "t", "--max-messages", "100", "--throughput", "50"]
        there.tool("verifiable-producer", *slowly)
        found = scrape(broker)
        names = [name for name in found.samples if name.startswith(PREFIX)]
        assert names, sorted(found.samples)
        labels = dict(next(iter(found.samples[names[0]])))
        assert labels["software"] == f"apache-kafka-java {java.version}"
        assert (found("kafka_server_client_metrics_plugin_export_total") or 0) > 0
        assert found("kafka_server_client_metrics_plugin_error_total") == 0
    finally:
        broker.stop()
