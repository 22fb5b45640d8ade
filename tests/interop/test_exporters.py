"""``/metrics`` beside others: the checks of ``promtool check metrics``, and a third-party exporter's numbers.

promtool's checks are promlint, of Prometheus's client for Go. The exporter is prometheus-kafka-consumer-group-exporter,
which reads the records of ``__consumer_offsets`` itself, and asks the broker for the ends of partitions.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import maven
from harness.children import ending_with_parent
from harness.ports import free_port
from tests.interop.support import PROGRAMS, built, needed, run
from tests.metrics.test_rules import RULES, panels
from tests.support.metrics import LISTENER, Scraped, address_of, get, scrape
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

from ottla_client import TopicPartition
from ottla_client.admin import NewTopic
from ottla_client.sync import Admin, Producer

EXPORTER = [
    "prometheus-kafka-consumer-group-exporter==0.5.5",
    "kafka-python==2.0.2",  # The last ones don't have the modules that it imports.
    "jog==0.1.1",
    "javaproperties==0.8.2",
    "prometheus-client==0.26.0",
]
LAGS = {"idle": {0: 0, 1: 0}, "behind": {0: 3, 1: 11}, 'odd "name"\\': {0: 20}}
"""How many records of a partition each group hasn't read."""
ENDS = {0: 20, 1: 30}

KAFKAS_LABELS = {"ackType", "clientId", "delayedOperation", "logDirectory", "networkProcessor"}
"""Parts of the names of Kafka's MBeans, as the JMX exporter's rules take them over."""


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that serves metrics, with groups whose lags are known."""
    running = BrokerProcess(tmp_path_factory.mktemp("metered") / "data", LISTENER).start()
    try:
        with Admin(running.bootstrap) as admin, Producer(running.bootstrap) as producer:
            admin.create_topics([NewTopic("t", len(ENDS))])
            for partition, count in ENDS.items():
                for _ in range(count):
                    producer.send("t", b"x", partition=partition)
            producer.flush()
            for group, lags in LAGS.items():
                offsets = {TopicPartition("t", number): ENDS[number] - lag for number, lag in lags.items()}
                admin.alter_group_offsets(group, offsets)
        yield running
    finally:
        running.stop()


def test_promlint(metered: BrokerProcess) -> None:
    go = needed("go")
    folder = built("promlint", PROGRAMS / "promlint", "lint", [go, "build", "-o", "lint", "."])
    get(address_of(metered), "/metrics")
    _, text, _ = get(address_of(metered), "/metrics")
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    assert len(families) > 100
    for line in run([str(folder / "lint")], stdin=text).splitlines():
        metric, problem = line.split("\t")
        if "camelCase" in problem:
            samples = Scraped(text).samples[metric]
            labels = {label for key in samples for label, _ in key}
            assert {each for each in labels if not each.islower()} <= KAFKAS_LABELS, line
        else:
            # Names of Kafka and of the usual exporters, whose suffixes mean something else.
            assert metric.startswith("kafka_"), line
            assert "_count" in problem or "_sum" in problem, line
    broken = text.replace("# TYPE", "# TIPE", 1) + "1 x\n"
    assert subprocess.run([folder / "lint"], input=broken.encode(), capture_output=True).returncode == 1


EMPTY = {
    "Failed logins": "no listener has a login",
    "Followers behind": "one broker has no followers",
    "Lag in time of share groups and groups in ZooKeeper": "there are none",
    "Rebalances": "no group has members",
    "Records that share groups dropped": "there are no share groups",
}
"""Panels of the dashboard that have no data here, and why."""
VARIABLES = {"$job": "ottla-test", "$instance": ".*", "$__rate_interval": "1m"}


def filled(expression: str) -> str:
    """An expression of the dashboard as Grafana sends it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def test_prometheus_evaluates_the_dashboard_and_the_rules(metered: BrokerProcess) -> None:
    go = needed("go")
    folder = built("promql", PROGRAMS / "promql", "evaluate", [go, "build", "-o", "evaluate", "."])
    address = address_of(metered)
    queries = [filled(expression) for _, expression in panels()]
    alerts = [rule["expr"] for rule in RULES.values()]

    def is_shown() -> bool:
        scrapes = [{address: get(address, "/metrics")[1]} for _ in range(3)]
        given = json.dumps({"scrapes": scrapes, "queries": [*queries, *alerts]})
        answers = run([str(folder / "evaluate")], stdin=given).splitlines()
        assert [each for each in zip([*queries, *alerts], answers, strict=True) if "\t" in each[1]] == []
        shown = {title for (title, _), answer in zip(panels(), answers, strict=False) if answer != "0"}
        return {title for title, _ in panels()} - shown == EMPTY.keys()

    wait_for(is_shown, "data for all other panels: some come a moment after the groups")


def test_a_third_party_exporter_has_the_same_numbers(metered: BrokerProcess, tmp_path: Path) -> None:
    packages = maven.CACHE / "group-exporter" / "packages"
    if not packages.exists():
        sources = tmp_path / "no sources"
        sources.mkdir()
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            "packages",
            *EXPORTER,
        ]
        built("group-exporter", sources, "packages", install)
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "prometheus_kafka_consumer_group_exporter",
        *("--bootstrap-brokers", metered.bootstrap, "--port", str(port), "--from-start"),
        *("--topic-interval", "0.2", "--high-water-interval", "0.2", "--low-water-interval", "0.2"),
    ]
    expected = {
        (group, "t", str(number)): float(lag) for group, lags in LAGS.items() for number, lag in lags.items()
    }
    with (tmp_path / "exporter.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env={"PYTHONPATH": str(packages)},
            preexec_fn=ending_with_parent(),
        )
        try:

            def theirs() -> bool:
                assert process.poll() is None, (tmp_path / "exporter.log").read_text()
                return _lags(port) == expected

            wait_for(theirs, f"{expected} at the exporter")
        finally:
            process.kill()
            process.wait()
    found = scrape(metered).samples["kafka_consumergroup_lag"]
    ours = {
        tuple(dict(key)[label] for label in ("consumergroup", "topic", "partition")): value
        for key, value in found.items()
    }
    assert ours == expected


def _lags(port: int) -> dict[tuple[str, ...], float]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            samples = Scraped(answer.read().decode()).samples
    except OSError:
        return {}
    return {
        tuple(dict(key)[label] for label in ("group", "topic", "partition")): value
        for key, value in samples.get("kafka_consumer_group_lag", {}).items()
    }
