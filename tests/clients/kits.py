"""Three unmodified clients behind a small common interface.

Tests use a client directly for features that only it has.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import aiokafka
import confluent_kafka as ck
from aiokafka.admin import AIOKafkaAdminClient

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # kafka-python reads its schemas in a way that Python 3.11 deprecates
    import kafka

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
DEADLINE_S = 60.0

Header = tuple[str, bytes | None]


class Sent(NamedTuple):
    """A record to produce; ``timestamp`` None: the client's own time."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    partition: int = 0


class Got(NamedTuple):
    """A record as a consumer got it; ``timestamp_type`` 0: CreateTime, 1: LogAppendTime."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


Enough = Callable[[list[Got]], bool]


class Kit(ABC):
    """One client library."""

    name: str

    @abstractmethod
    def produce(
        self,
        broker: BrokerProcess,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> list[int]:
        """Produce in order, in as few batches as the client makes. Returns the offsets, -1 each with ``acks=0``."""

    @abstractmethod
    def read(
        self,
        broker: BrokerProcess,
        topic: str,
        enough: Enough,
        *,
        partitions: Iterable[int] = (0,),
        offset: int = 0,
    ) -> list[Got]:
        """Read the partitions from ``offset`` on, without a group, until ``enough`` is true of the records."""

    def consume(
        self,
        broker: BrokerProcess,
        topic: str,
        count: int,
        *,
        partitions: Iterable[int] = (0,),
        offset: int = 0,
    ) -> list[Got]:
        """Read until there are ``count`` records."""
        return self.read(broker, topic, lambda got: len(got) >= count, partitions=partitions, offset=offset)

    def consume_to(self, broker: BrokerProcess, topic: str, last: int) -> list[Got]:
        """Read partition 0 up to the record at offset ``last``."""
        return self.read(broker, topic, lambda got: bool(got) and got[-1].offset >= last)

    def __repr__(self) -> str:
        return self.name


def _short(topic: str, got: Sequence[Got]) -> AssertionError:
    return AssertionError(
        f"{topic}: {len(got)} records within {DEADLINE_S:g} s are too few; the last: {got[-1:]}"
    )


class ConfluentKit(Kit):
    name = "confluent"

    def produce(
        self,
        broker: BrokerProcess,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> list[int]:
        producer = ck.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "message.max.bytes": max_bytes,
                "linger.ms": 20,
                "delivery.timeout.ms": int(DEADLINE_S * 1000),
            }
        )
        offsets = [-1] * len(records)
        errors = []

        for index, record in enumerate(records):

            def delivered(error: ck.KafkaError | None, message: ck.Message, index: int = index) -> None:
                if error is not None:
                    errors.append(ck.KafkaException(error))
                elif acks:
                    offsets[index] = message.offset()

            extra = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=delivered,
                headers=list(record.headers),
                **extra,
            )
        left = producer.flush(DEADLINE_S)
        if errors:
            raise errors[0]
        assert not left, f"{left} of {len(records)} records were not sent within {DEADLINE_S:g} s"
        return offsets

    def read(
        self,
        broker: BrokerProcess,
        topic: str,
        enough: Enough,
        *,
        partitions: Iterable[int] = (0,),
        offset: int = 0,
    ) -> list[Got]:
        consumer = ck.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
            }
        )
        got: list[Got] = []
        try:
            consumer.assign([ck.TopicPartition(topic, partition, offset) for partition in partitions])
            deadline = time.monotonic() + DEADLINE_S
            while not enough(got):
                for message in consumer.consume(500, 0.1):
                    if message.error():
                        raise ck.KafkaException(message.error())
                    got.append(confluent_got(message))
                if time.monotonic() > deadline:
                    raise _short(topic, got)
        finally:
            consumer.close()
        return got


def confluent_got(message: ck.Message) -> Got:
    kind, timestamp = message.timestamp()
    return Got(
        message.partition(),
        message.offset(),
        timestamp,
        1 if kind == ck.TIMESTAMP_LOG_APPEND_TIME else 0,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


class KafkaPythonKit(Kit):
    name = "kafka-python"

    def produce(
        self,
        broker: BrokerProcess,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks,
            enable_idempotence=idempotent,
            max_request_size=max_bytes,
            linger_ms=20,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            producer.flush(DEADLINE_S)
            return [future.get(DEADLINE_S).offset if acks else -1 for future in futures]
        finally:
            producer.close(timeout=DEADLINE_S)

    def read(
        self,
        broker: BrokerProcess,
        topic: str,
        enough: Enough,
        *,
        partitions: Iterable[int] = (0,),
        offset: int = 0,
    ) -> list[Got]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
        )
        got: list[Got] = []
        try:
            assigned = [kafka.TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(assigned)
            for partition in assigned:
                consumer.seek(partition, offset)
            deadline = time.monotonic() + DEADLINE_S
            while not enough(got):
                for messages in consumer.poll(100).values():
                    got += map(record_got, messages)
                if time.monotonic() > deadline:
                    raise _short(topic, got)
        finally:
            consumer.close(autocommit=False)
        return got


def record_got(message: Any) -> Got:
    """kafka-python's and aiokafka's records have the same fields."""
    return Got(
        message.partition,
        message.offset,
        message.timestamp,
        message.timestamp_type,
        message.key,
        message.value,
        tuple(message.headers),
    )


class AiokafkaKit(Kit):
    name = "aiokafka"

    def produce(
        self,
        broker: BrokerProcess,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> list[int]:
        async def run() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=broker.bootstrap,
                compression_type=None if codec == "none" else codec,
                acks=acks,
                enable_idempotence=idempotent,
                max_request_size=max_bytes,
                linger_ms=20,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
                answers = await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)
                return [answer.offset if acks else -1 for answer in answers]
            finally:
                await producer.stop()

        return asyncio.run(run())

    def read(
        self,
        broker: BrokerProcess,
        topic: str,
        enough: Enough,
        *,
        partitions: Iterable[int] = (0,),
        offset: int = 0,
    ) -> list[Got]:
        async def run() -> list[Got]:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=broker.bootstrap, enable_auto_commit=False, auto_offset_reset="none"
            )
            await consumer.start()
            got: list[Got] = []
            try:
                assigned = [aiokafka.TopicPartition(topic, partition) for partition in partitions]
                consumer.assign(assigned)
                for partition in assigned:
                    consumer.seek(partition, offset)
                deadline = time.monotonic() + DEADLINE_S
                while not enough(got):
                    for messages in (await consumer.getmany(timeout_ms=100)).values():
                        got += map(record_got, messages)
                    if time.monotonic() > deadline:
                        raise _short(topic, got)
            finally:
                await consumer.stop()
            return got

        return asyncio.run(run())


KITS: list[Kit] = [ConfluentKit(), KafkaPythonKit(), AiokafkaKit()]


async def aiokafka_admin(broker: BrokerProcess) -> AIOKafkaAdminClient:
    """A started admin client of aiokafka."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    return admin
