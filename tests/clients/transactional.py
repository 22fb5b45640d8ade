"""Transactional producers of three unmodified clients behind one interface, and readers of what they commit."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any

import aiokafka
import confluent_kafka as ck
from aiokafka.structs import TopicPartition as AiokafkaPartition
from tests.clients.kits import DEADLINE_S, kafka

Offsets = Mapping[tuple[str, int], int]


class Fenced(Exception):
    """Another instance has the transactional id."""


class TransactionalProducer(ABC):
    """Raises :class:`Fenced` where the client says that its producer has been replaced."""

    name: str

    @abstractmethod
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        """Start, with ``init_transactions``."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, value: bytes, partition: int = 0) -> None: ...

    @abstractmethod
    def flush(self) -> None:
        """Wait until everything is acknowledged."""

    @abstractmethod
    def send_offsets(self, offsets: Offsets, group: str) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Confluent(TransactionalProducer):
    name = "confluent"

    def __init__(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000, **settings: object
    ) -> None:
        self._bootstrap = bootstrap
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._call(self._producer.init_transactions, DEADLINE_S)

    @staticmethod
    def _call(call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except ck.KafkaException as error:
            if error.args[0].fatal() or error.args[0].code() == ck.KafkaError._FENCED:
                raise Fenced(str(error)) from error
            raise

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._call(lambda: self._producer.produce(topic, value, partition=partition))

    def flush(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0

    def send_offsets(self, offsets: Offsets, group: str) -> None:
        metadata = ck.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": group}
        ).consumer_group_metadata()
        positions = [ck.TopicPartition(name, index, offset) for (name, index), offset in offsets.items()]
        self._call(self._producer.send_offsets_to_transaction, positions, metadata, DEADLINE_S)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, DEADLINE_S)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, DEADLINE_S)

    def close(self) -> None:
        del self._producer


class KafkaPython(TransactionalProducer):
    name = "kafka-python"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=int(DEADLINE_S * 1000),
        )
        self._call(self._producer.init_transactions)

    @staticmethod
    def _call(call: Any, *arguments: Any) -> Any:
        errors = kafka.errors
        try:
            return _in_time(lambda: call(*arguments))
        except (errors.ProducerFencedError, errors.InvalidProducerEpochError) as error:
            raise Fenced(str(error)) from error

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._call(lambda: self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        self._producer.flush(DEADLINE_S)

    def send_offsets(self, offsets: Offsets, group: str) -> None:
        positions = {
            kafka.TopicPartition(name, index): kafka.structs.OffsetAndMetadata(offset, "", -1)
            for (name, index), offset in offsets.items()
        }
        self._call(self._producer.send_offsets_to_transaction, positions, group)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=5)


def _in_time(call: Callable[[], Any]) -> Any:
    """Call it with a deadline: kafka-python's producer waits without one for the end of a transaction."""
    result: Future[Any] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result(DEADLINE_S)


class Aiokafka(TransactionalProducer):
    """On an event loop of its own, in a thread."""

    name = "aiokafka"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()
            return producer

        self._producer = self._run(start())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)
        except aiokafka.errors.ProducerFenced as error:
            raise Fenced(str(error)) from error

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._run(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        self._run(self._producer.flush())

    def send_offsets(self, offsets: Offsets, group: str) -> None:
        positions = {AiokafkaPartition(name, index): offset for (name, index), offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(positions, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(DEADLINE_S)
            self._loop.close()


PRODUCERS: list[type[TransactionalProducer]] = [Confluent, KafkaPython, Aiokafka]


def read_confluent(bootstrap: str, topic: str, partitions: int = 1, committed: bool = True) -> list[bytes]:
    """All values of a topic that a consumer with this isolation level gets, up to the end that it sees."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, "no answer in time"
        error = message.error()
        if error is None:
            values.append(message.value())
        elif error.code() == ck.KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise ck.KafkaException(error)
    consumer.close()
    return values


def read_kafka_python(bootstrap: str, topic: str, partitions: int = 1, committed: bool = True) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
    )
    places = [kafka.TopicPartition(topic, index) for index in range(partitions)]
    consumer.assign(places)
    ends = consumer.end_offsets(places)
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while any(consumer.position(place) < ends[place] for place in places):
        assert time.monotonic() < deadline, f"{len(values)} records, but not the end, in time"
        for records in consumer.poll(1000).values():
            values += [record.value for record in records]
    consumer.close()
    return values


def read_aiokafka(bootstrap: str, topic: str, partitions: int = 1, committed: bool = True) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        await consumer.start()
        try:
            places = [AiokafkaPartition(topic, index) for index in range(partitions)]
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            values: list[bytes] = []
            while any([await consumer.position(place) < ends[place] for place in places]):
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    values += [record.value for record in records]
            return values
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), DEADLINE_S))


READERS = {"confluent": read_confluent, "kafka-python": read_kafka_python, "aiokafka": read_aiokafka}


def committed_offset(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """A group's committed offset; -1001 without one."""
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    [found] = consumer.committed([ck.TopicPartition(topic, partition)], DEADLINE_S)
    consumer.close()
    return int(found.offset)
