"""``ottla transactions``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator

import pytest
from tests.cli.ottla_command import Ottla
from tests.support.processes import BrokerProcess
from tests.support.transactions import hang
from tests.support.waiting import wait_for

from ottla_client.sync import Producer

NewTopic = Callable[..., str]
NewName = Callable[..., str]

pytestmark = pytest.mark.usefixtures("transactions")


@pytest.fixture
def ottla(broker: BrokerProcess) -> Ottla:
    return Ottla(broker.bootstrap)


@pytest.fixture
def ongoing(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName
) -> Iterator[tuple[str, str, Producer]]:
    """A transaction with two partitions: its id, topic and producer."""
    topic, name = new_topic(2), new_name("txn")
    with Producer(broker.bootstrap, transactional_id=name) as producer:
        producer.begin_transaction()
        for partition in range(2):
            producer.send(topic, b"v", partition=partition).result()
        yield name, topic, producer


def test_list(ottla: Ottla, ongoing: tuple[str, str, Producer]) -> None:
    name, _, producer = ongoing
    row = next(row for row in ottla.rows("transactions", "list") if row[0] == name)
    assert row[1] == "Ongoing"
    (listed,) = ottla.json("transactions", "list", name[:3] + "*" + name[-1], "--state", "Ongoing")
    assert listed == {
        "transactional_id": name,
        "state": "Ongoing",
        "producer_id": int(row[2]),
        "coordinator": int(row[3]),
    }
    assert ottla.json("transactions", "list", "--producer-id", row[2]) == [listed]
    assert ottla.json("transactions", "list", "--open-for", "1h") == []
    assert "no transactional id matches" in ottla.run("transactions", "list", "nothing*").stderr
    producer.abort_transaction()


def test_describe(ottla: Ottla, ongoing: tuple[str, str, Producer]) -> None:
    name, topic, producer = ongoing
    text = ottla("transactions", "describe", name)
    assert re.search(r"^Open since        2\d{3}-", text, re.MULTILINE)
    assert f"Partitions        {topic}:0-1\n" in text
    assert "State             Ongoing\n" in text
    found = ottla.json("transactions", "describe", name)
    assert found["partitions"] == [[topic, 0], [topic, 1]]
    assert found["timeout_ms"] == 60_000
    assert found["started"] > 1_700_000_000_000
    assert f"did you mean {name}" in ottla.fails("transactions", "describe", name + "x")
    assert "a transactional id is ''; it must be a name" in ottla.fails(
        "transactions", "describe", "", code=2
    )
    producer.abort_transaction()
    text = ottla("transactions", "describe", name)
    assert "Open since        -\n" in text
    assert re.search(r"^Last one began    2\d{3}-", text, re.MULTILINE)


def test_describe_producers(ottla: Ottla, ongoing: tuple[str, str, Producer]) -> None:
    name, topic, _ = ongoing
    producer_id = ottla.json("transactions", "describe", name)["producer_id"]
    found = ottla.json("transactions", "describe-producers", f"{topic}:1")
    assert [(each["partition"], each["producer_id"], each["start_offset"]) for each in found] == [
        (1, producer_id, 0)
    ]
    assert len(ottla.rows("transactions", "describe-producers", topic)) == 2
    assert "unknown topic" in ottla.fails("transactions", "describe-producers", "not-there")


def test_fence(ottla: Ottla, ongoing: tuple[str, str, Producer]) -> None:
    name, _, _ = ongoing
    assert "--yes" in ottla.fails("transactions", "fence", name, code=2)
    assert ottla("transactions", "fence", name, "--yes") == f"fenced the producers of {name}\n"
    (fenced,) = ottla.json("transactions", "fence", name, "--yes")
    assert fenced["transactional_id"] == name
    assert "unknown transactional id" in ottla.fails("transactions", "fence", "not-there", "--yes")


def test_find_hanging_and_abort(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(settings={"transaction.partition.verification.enable": False})
    ottla = Ottla(broker.bootstrap)
    ottla("topics", "create", "topic")
    # Kafka's brokers learn of it a moment later.
    wait_for(lambda: ottla.json("topics", "list", "topic"), "the topic")
    assert "no transaction hangs" in ottla.run("transactions", "find-hanging").stderr
    producer_id = asyncio.run(hang(broker, "topic", "left"))
    assert ottla.json("transactions", "find-hanging") == []
    find = ("transactions", "find-hanging", "--topic", "topic", "--max-transaction-timeout", "0ms")
    (found,) = ottla.json(
        *find, "--broker-id", str(ottla.json("cluster", "describe")["brokers"][0]["broker"])
    )
    assert (found["topic"], found["partition"], found["start_offset"]) == ("topic", 0, 0)
    assert (found["producer_id"], found["transactional_id"]) == (producer_id, "left")
    assert ottla.json(*find, "--broker-id", "4711") == []
    abort = ("transactions", "abort", "--topic", "topic", "--partition", "0")
    assert "give --start-offset, or" in ottla.fails(*abort, code=2)
    assert "open ones start at 0" in ottla.fails(*abort, "--start-offset", "7", "--yes")
    assert "--yes" in ottla.fails(*abort, "--start-offset", "0", code=2)
    assert f"aborted the transaction of producer {producer_id}" in ottla(
        *abort, "--start-offset", "0", "--yes"
    )
    assert ottla.json(*find) == []
    assert "has no open transaction" in ottla.fails(*abort, "--start-offset", "0", "--yes")
    numbers = ["--producer-id", str(producer_id), "--producer-epoch", "0", "--coordinator-epoch", "0"]
    assert "INVALID_PRODUCER_EPOCH" in ottla.fails(*abort, *numbers, "--yes")
