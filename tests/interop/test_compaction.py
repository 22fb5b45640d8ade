"""The same writes are compacted by an Ottla broker and by Kafka: the same records, batches and segments are left.

Ottla may keep a batch without records where Kafka 3.9.1 keeps none: the last one of a cleaned stretch, which carries
the last offset (Kafka does so since 4.0, KAFKA-17076). A marker waits for such a batch of its transaction too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from harness import maven, wire
from harness.brokers import HOST, Broker, Ottla
from harness.java import Unavailable
from tests.support.kafka import QuickKafka

from ottla_protocol.records.batch import NO_PRODUCER_ID
from ottla_protocol.records.formats import decode_any, iter_headers
from ottla_protocol.records.record import Record

TOPIC = "compared"
CONFIGS = {
    "segment.bytes": "6000",
    "retention.ms": "-1",
    "delete.retention.ms": "1",
    "message.timestamp.type": "CreateTime",
}
DEADLINE_S = 60.0
T = 1_700_000_000_000


class Batch(NamedTuple):
    """What is left of a batch, as far as two brokers must agree. ``segment`` is the base offset of its file."""

    segment: int
    offset: int
    last_offset: int
    codec: int
    is_transactional: bool
    is_control: bool
    has_horizon: bool
    max_timestamp: int
    producer: int
    sequence: int
    records: list[Record]


class Writers:
    """Unmodified clients that write the same to a broker whenever they get the same random numbers."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.time_ms = T
        base = {"bootstrap.servers": broker.address, "acks": "all", "linger.ms": 1000, "log_level": 0}
        self.plain = [
            Producer(base | {"compression.codec": codec})
            for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        ]
        self.idempotent = Producer(base | {"enable.idempotence": True})
        self.transactional = [
            Producer(base | {"transactional.id": f"writer-{number}"}) for number in range(2)
        ]
        for producer in (*self.plain, self.idempotent):
            warm_up(producer)
        for producer in self.transactional:
            producer.init_transactions(DEADLINE_S)
            producer.begin_transaction()
            warm_up(producer)
            producer.commit_transaction(DEADLINE_S)
        self.open = [False, False]

    def write(self, random: Random, steps: int) -> None:
        for _ in range(steps):
            kind = random.randrange(10)
            if kind < 5:
                self._send(random, self.plain[kind])
            elif kind < 6:
                self._send(random, self.idempotent)
            else:
                self._go_on(random, random.randrange(2))
        for number, is_open in enumerate(self.open):
            if is_open:
                self._end(number, self.transactional[number].commit_transaction)

    def _go_on(self, random: Random, number: int) -> None:
        producer = self.transactional[number]
        if not self.open[number]:
            producer.begin_transaction()
            self.open[number] = True
        self._send(random, producer)
        match random.randrange(4):
            case 0:
                self._end(number, producer.commit_transaction)
            case 1:
                self._end(number, producer.abort_transaction)

    def _end(self, number: int, how: Callable[[float], None]) -> None:
        """End a transaction, and wait for its marker: the coordinator writes it after its answer."""
        end = left(self.broker)[-1].last_offset
        how(DEADLINE_S)
        self.open[number] = False
        deadline = time.monotonic() + DEADLINE_S
        while left(self.broker)[-1].last_offset == end:
            assert time.monotonic() < deadline, f"{self.broker.name} has written no marker"

    def _send(self, random: Random, producer: Producer) -> None:
        """Produce one batch."""
        for _ in range(random.randrange(1, 12)):
            self.time_ms += random.randrange(3)
            key = b"key-%d" % random.randrange(40)
            value = None if random.randrange(8) == 0 else random.randbytes(random.randrange(60))
            headers: Any = [("header", b"x")] if random.randrange(4) == 0 else None
            producer.produce(
                TOPIC, value=value, key=key, partition=0, timestamp=self.time_ms, headers=headers
            )
        assert producer.flush(DEADLINE_S) == 0


def warm_up(producer: Producer) -> None:
    """Have the client know the topic, so that it splits no batch later."""
    producer.produce(TOPIC, b"", b"warm up", partition=1)
    assert producer.flush(DEADLINE_S) == 0


def alter(broker: Broker, **configs: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(DEADLINE_S)


def segments(broker: Broker) -> list[Path]:
    return sorted((broker.data / f"{TOPIC}-0").glob("*.log"))


def clean(broker: Broker) -> None:
    """Compact the topic for as long as that takes."""
    alter(broker, cleanup_policy="compact")
    active = int(segments(broker)[-1].stem)
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + DEADLINE_S
    while not checkpoint.exists() or f"{TOPIC} 0 {active}\n" not in checkpoint.read_text():
        assert time.monotonic() < deadline, f"{broker.name} doesn't clean\n{broker.tail()}"
        time.sleep(0.02)
    alter(broker, cleanup_policy="delete")


def left(broker: Broker) -> list[Batch]:
    found: list[Batch] = []
    producers: dict[int, int] = {NO_PRODUCER_ID: NO_PRODUCER_ID}
    for path in segments(broker):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            records = decode_any(data, position, header)
            found.append(
                Batch(
                    int(path.stem),
                    header.base_offset,
                    header.last_offset,
                    header.codec if records else 0,
                    header.is_transactional,
                    header.is_control,
                    header.has_delete_horizon and not header.is_control,
                    # Markers have the brokers' clocks.
                    0 if header.is_control else header.max_timestamp,
                    # Producer ids differ; what matters is who is who.
                    producers.setdefault(header.producer_id, len(producers)),
                    header.base_sequence,
                    [] if header.is_control else records,
                )
            )
            if header.is_control:
                assert len(records) <= 1
    return found


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Broker]]:
    try:
        maven.kafka_jars()
    except Unavailable as lack:
        pytest.skip(str(lack))
    settings = {"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0"}
    made: list[Broker] = [QuickKafka(tmp_path / "kafka", settings), Ottla(tmp_path / "ottla", settings)]
    try:
        for broker in made:
            broker.start()
            connection = wire.Connection(HOST, broker.port)
            connection.create(TOPIC, 2, CONFIGS)
            connection.close()
        yield made
    finally:
        for broker in made:
            broker.remove()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_is_left(brokers: list[Broker], seed: int) -> None:
    writers = [Writers(broker) for broker in brokers]
    for phase in range(4):
        for writer in writers:
            writer.write(Random(f"{seed} {phase}"), 60)
        check_alike(*brokers)
        for broker in brokers:
            clean(broker)
        check_alike(*brokers)
    assert any(batch.has_horizon for batch in left(brokers[0]))


def check_alike(kafka: Broker, ottla: Broker) -> None:
    expected, found = left(kafka), left(ottla)
    assert data(found) == data(expected)
    ends = {each.segment - 1 for each in found}
    known = {each.offset for each in expected}
    extra = [each for each in found if each.offset not in known]
    assert all(not each.records and (each.is_control or each.last_offset in ends) for each in extra)
    assert [each for each in found if each.offset in known] == expected


def data(batches: list[Batch]) -> list[tuple[int, Any]]:
    """The segment and each record that is left."""
    return [(batch.segment, record) for batch in batches for record in batch.records]
