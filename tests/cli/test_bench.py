"""``ottla bench`` measures and leaves nothing behind. The results aren't tested."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from harness.ports import free_port
from tests.support.commands import Shell, ottla
from tests.support.processes import BrokerProcess


@pytest.fixture
def shell(broker: BrokerProcess) -> Shell:
    return Shell(broker.bootstrap)


def topics(shell: Shell) -> set[str]:
    return {topic["topic"] for topic in json.loads(shell("topics", "list", "--json").out)}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (
            ["produce", "-n", "5000", "--acks", "1", "-z", "lz4", "--partitions", "2"],
            {"acks": "1", "partitions": 2},
        ),
        (["produce", "-n", "2500", "--single", "-s", "10"], {"bytes": 10, "compression": "none"}),
        (["consume", "-n", "5000", "--partitions", "2"], {"records": 5000, "bytes": 100}),
        (["roundtrip", "-n", "20"], {"records": 20, "acks": "all"}),
    ],
)
def test_figures(shell: Shell, args: list[str], expected: dict[str, Any]) -> None:
    before = topics(shell)
    done = shell("bench", *args, "--json")
    assert done.code == 0, done.err
    figures = json.loads(done.out)
    assert figures["bench"] == args[0]
    assert figures["records"] == int(args[2])
    assert expected.items() <= figures.items()
    assert figures["records_per_second"] > 0
    assert 0 < figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    assert topics(shell) == before


def test_an_existing_topic_is_consumed_and_kept(shell: Shell, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    shell("produce", topic, data=b"four\n" * 300)
    figures = json.loads(shell("bench", "consume", "--topic", topic, "--json").out)
    assert (figures["records"], figures["bytes"], figures["topic"]) == (300, 4, topic)
    assert len(shell.values(topic)) == 300
    assert shell("bench", "consume", "--topic", topic + "x").err.startswith("Error: unknown topic")


def test_results_as_text(shell: Shell) -> None:
    done = shell("bench", "produce", "-n", "1000")
    assert done.code == 0
    assert [line.split(b"  ")[0] for line in done.lines] == [b"Bench", b"Records", b"Rate", b"Acknowledged"]


def test_no_broker_there() -> None:
    done = ottla(f"127.0.0.1:{free_port()}", "bench", "produce", "--timeout", "1")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("Error: no bootstrap server answered")
