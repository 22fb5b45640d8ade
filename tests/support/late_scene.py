"""What scenarios of late requests are made of: brokers, what may happen to them, and a topic with producers.

The scenarios are in ``late_scenarios.py`` and ``late_successors.py``. Each drives producers step by step, whatever
their language, while a network holds requests of theirs back. It is over when a last transaction of the same client has
succeeded; then a read_committed reader sees in partition 0 what the scenario returns, and the group has committed what
it should have. A step that fails is an anomaly unless the scenario expects it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import confluent_kafka as ck
from tests.support.late_drivers import Driver, MakeDriver
from tests.support.late_frames import (
    Held,
    Holds,
    How,
)
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for

from ottla_client.sync import Admin

TRANSACTIONS = "__transaction_state"
OFFSETS = "__consumer_offsets"
PARTITIONS = 3

SETTINGS: Mapping[str, object] = {
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
}


class Place(Protocol):
    """Brokers. Clients whose requests may be held go to ``address``, others to ``bootstrap``."""

    holds: Holds

    @property
    def address(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...
    def create(self, topic: str) -> None: ...


class OneBroker:
    """A broker behind a network with this address."""

    def __init__(self, broker: BrokerProcess, holds: Holds, address: str) -> None:
        self._broker, self.holds, self.address = broker, holds, address

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def create(self, topic: str) -> None:
        create_topic(self._broker, topic, PARTITIONS)


class Move:
    """What happens to the brokers at each stage of a scenario. By itself: nothing."""

    skip = 0
    """Which of the requests that could be held is."""

    def begin(self) -> None:
        """Before the first client."""

    def ready(self) -> None:
        """The first client has done a transaction, and has all its connections."""

    def written(self) -> None:
        """The next request is to be held."""

    def held(self) -> None:
        """The client has gone on."""

    def delivered(self) -> None:
        """The request has come late."""


class Scene:
    """A topic and its producers on some brokers. Transactional id and group have the topic's name."""

    def __init__(self, place: Place, make: MakeDriver, topic: str, move: Move) -> None:
        self.place, self.topic, self.move = place, topic, move
        self._make = make
        self._made: list[Driver] = []
        self._expected: list[str] = []
        self.offset = 0

    def new(self, settings: Mapping[str, object] | None = None) -> Driver:
        """A producer that isn't initialized."""
        made = self._make(self.place.address, self.topic, self.topic, settings or {})
        self._made.append(made)
        return made

    def producer(self, settings: Mapping[str, object] | None = None) -> Driver:
        """A producer that has done a transaction with all partitions and the group."""
        producer = self.new(settings)
        producer.init()
        self.warm(producer)
        self.move.ready()
        return producer

    def warm(self, producer: Driver) -> None:
        producer.begin()
        for partition in range(PARTITIONS):
            producer.send("w", partition)
        producer.flush()
        producer.offsets(self.offset)
        producer.commit()
        self._expected.append("w")

    def hold(self, api_key: int, how: How = How.CUT, *, skip: int = 0, client: str = "producer") -> Held:
        self.move.written()
        return self.place.holds.hold(api_key, how, skip=self.move.skip + skip, client=client)

    def deliver(self, held: Held) -> None:
        """Send what was held, if the client has sent it."""
        if not self.place.holds.forget(held):
            held.wait()
            self.move.held()
            held.deliver()
            self.move.delivered()

    def idle(self) -> None:
        """The id has no open transaction, which would time out under a client that does nothing."""
        with Admin(self.place.bootstrap) as admin:

            def settled() -> str:
                (described,) = admin.describe_transactions([self.topic]).values()
                return "" if described.state.startswith("Prepare") else described.state

            assert wait_for(settled, f"the markers of {self.topic}") != "Ongoing"

    def finish(self, right: list[str]) -> None:
        """The last producer does one transaction more, and what is committed is right."""
        assert committed_offset(self.place.bootstrap, self.topic) == self.offset
        last = self._made[-1]
        last.begin()
        last.send("z")
        last.offsets(99)
        last.commit()
        assert read_committed(self.place.bootstrap, self.topic) == [*self._expected, *right, "z"]
        assert committed_offset(self.place.bootstrap, self.topic) == 99

    def close(self) -> None:
        self.place.holds.clear()
        for each in self._made:
            each.close()


Run = Callable[[Scene], list[str]]


@dataclass(frozen=True)
class Scenario:
    """A scenario, and where it makes sense.

    Attributes:
        topics: what it depends on who leads: records (the topic's), OFFSETS or TRANSACTIONS.
        moves: what else may happen to those, by the names in ``late_cluster.MOVES``.
        clients: which can do this; empty: all.
        kafka_fails: Apache Kafka 3.9.1 shows an anomaly to confluent-kafka; None: in some runs.
        in_cluster: it makes sense in a cluster only.
    """

    run: Run
    topics: tuple[str, ...] = (TRANSACTIONS,)
    moves: tuple[str, ...] = ()
    clients: frozenset[str] = frozenset()
    kafka_fails: bool | None = False
    in_cluster: bool = False


RECORDS = "records"
SCENARIOS: dict[str, Scenario] = {}


def play(name: str, place: Place, make: MakeDriver, topic: str, move: Move | None = None) -> None:
    """Run a scenario. Raises AssertionError or StepFailed for an anomaly."""
    place.create(topic)
    scene = Scene(place, make, topic, move or Move())
    try:
        scene.move.begin()
        scene.finish(SCENARIOS[name].run(scene))
    finally:
        scene.close()


def scenario(
    *topics: str,
    moves: str = "",
    clients: str = "",
    kafka_fails: bool | None = False,
    in_cluster: bool = False,
) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        SCENARIOS[run.__name__] = Scenario(
            run,
            topics or (TRANSACTIONS,),
            tuple(moves.split()),
            frozenset(clients.split()),
            kafka_fails,
            in_cluster,
        )
        return run

    return add


def write(producer: Driver, value: str) -> None:
    producer.begin()
    producer.send(value)
    producer.flush()


def read_committed(address: str, topic: str) -> list[str]:
    """The committed values of a topic's first partition, once no transaction is open."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    values: list[str] = []
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == ck.KafkaError._PARTITION_EOF, error
                return values
            values.append((message.value() or b"").decode())
        raise AssertionError("the end of the partition was not reached")
    finally:
        consumer.close()


def committed_offset(address: str, group: str) -> int:
    """The offset that a group has committed for partition 0 of the topic with its name."""
    consumer = ck.Consumer({"bootstrap.servers": address, "group.id": group})
    try:
        [position] = consumer.committed([ck.TopicPartition(group, 0)], 60)
        return max(0, int(position.offset))
    finally:
        consumer.close()
