"""Compares client libraries: each job runs in its own process, with the same settings.

``python -m bench.clients NAME JSON`` does one job and writes one line of JSON, a ``load.Done``. The names are those
of ``JOBS``. Producers use acks=all, a linger of 5 ms and batches of 128 KiB, uncompressed, with each library's own
partitioner for records without a key, and its own default for idempotence. Consumers read assigned partitions from
the beginning, without a group. The clock starts after the imports and after the payloads are built; it includes a
consumer's connecting.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from typing import Any

from bench.load import BATCH, Done, payloads

LINGER_MS = 5
BATCH_SIZE = 128 * 1024
# The longest wait for records before a consumer's job fails.
PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Job:
    """A client's job; ``records`` is a multiple of BATCH for producers."""

    address: str
    topic: str
    records: int
    size: int = 100
    partitions: int = 4

    @property
    def rounds(self) -> int:
        return self.records // BATCH


def run(name: str, job: Job) -> Done:
    """Do a job in its own process. Raises RuntimeError with the client's last lines if it fails."""
    command = [sys.executable, "-m", "bench.clients", name, json.dumps(asdict(job))]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{name} failed at {job}:\n{done.stderr[-2000:]}")
    return Done(**json.loads(done.stdout.splitlines()[-1]))


class Clock:
    """A stopwatch."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def done(self, records: int) -> Done:
        return Done(time.perf_counter() - self._began, records, [])


def _nothing_came(seen: int, job: Job) -> RuntimeError:
    return RuntimeError(f"nothing came for {PATIENCE:.0f} s after {seen} of {job.records} records")


# Clients on asyncio

_ClientOf = Callable[[Job], AbstractAsyncContextManager[Any]]


async def _send(producer_of: _ClientOf, job: Job) -> Done:
    values = payloads(job.size, BATCH)
    topic = job.topic
    async with producer_of(job) as producer:
        send = producer.send
        clock = Clock()
        for _ in range(job.rounds):
            for value in values:
                await send(topic, value)
        await producer.flush()
        return clock.done(job.records)


def _import(*libraries: str) -> None:
    """Libraries, a client's own and those of others, are not on the clock."""
    for name in libraries:
        import_module(name)


async def _each(libraries: Sequence[str], consumer_of: _ClientOf, job: Job) -> Done:
    _import(*libraries)
    clock = Clock()
    seen = 0
    async with asyncio.timeout(300), consumer_of(job) as consumer:
        async for _ in consumer:
            seen += 1
            if seen == job.records:
                break
        return clock.done(seen)


async def _poll(
    libraries: Sequence[str], consumer_of: _ClientOf, poll: Callable[[Any], Awaitable[int]], job: Job
) -> Done:
    """``poll`` takes records, and returns how many."""
    _import(*libraries)
    clock = Clock()
    seen = 0
    async with consumer_of(job) as consumer:
        while seen < job.records:
            if not (count := await poll(consumer)):
                raise _nothing_came(seen, job)
            seen += count
        return clock.done(seen)


# ottla_client


@asynccontextmanager
async def ottla_producer(job: Job, linger_ms: float = LINGER_MS) -> AsyncIterator[Any]:
    from ottla_client import Producer

    async with Producer(
        bootstrap_servers=job.address, acks="all", linger_ms=linger_ms, batch_size=BATCH_SIZE
    ) as producer:
        await producer.partitions_for(job.topic)
        yield producer


@asynccontextmanager
async def ottla_consumer(job: Job, reset: str = "earliest") -> AsyncIterator[Any]:
    from ottla_client import Consumer, TopicPartition

    consumer = Consumer(bootstrap_servers=job.address, auto_offset_reset=reset)  # type: ignore[arg-type]
    consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
    async with consumer:
        yield consumer


async def ottla_send_batch(job: Job) -> Done:
    values = payloads(job.size, BATCH)
    async with ottla_producer(job) as producer:
        clock = Clock()
        for _ in range(job.rounds):
            await producer.send_batch(job.topic, values)
        await producer.flush()
        return clock.done(job.records)


async def ottla_send_arrow(job: Job) -> Done:
    import pyarrow

    table = pyarrow.table({"value": pyarrow.array(payloads(job.size, BATCH), pyarrow.binary())})
    async with ottla_producer(job) as producer:
        clock = Clock()
        for _ in range(job.rounds):
            await producer.send_arrow(job.topic, table)
        await producer.flush()
        return clock.done(job.records)


async def _ottla_records(consumer: Any) -> int:
    return len(await consumer.poll(timeout_ms=int(PATIENCE * 1000), max_records=BATCH))


async def _ottla_rows(consumer: Any) -> int:
    table = await consumer.poll_arrow(timeout_ms=int(PATIENCE * 1000))
    return int(table.num_rows)


# aiokafka


@asynccontextmanager
async def aiokafka_producer(job: Job, linger_ms: int = LINGER_MS) -> AsyncIterator[Any]:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=job.address, acks="all", linger_ms=linger_ms, max_batch_size=BATCH_SIZE
    )
    await producer.start()
    try:
        await producer.partitions_for(job.topic)
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def aiokafka_consumer(job: Job, reset: str = "earliest") -> AsyncIterator[Any]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.address, auto_offset_reset=reset, enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
        yield consumer
    finally:
        await consumer.stop()


async def _aiokafka_records(consumer: Any) -> int:
    records = await consumer.getmany(timeout_ms=int(PATIENCE * 1000), max_records=BATCH)
    return sum(map(len, records.values()))


# kafka-python


def kafka_python_send(job: Job) -> Done:
    from kafka import KafkaProducer

    values = payloads(job.size, BATCH)
    producer = KafkaProducer(
        bootstrap_servers=job.address, acks="all", linger_ms=LINGER_MS, batch_size=BATCH_SIZE
    )
    producer.partitions_for(job.topic)
    clock = Clock()
    for _ in range(job.rounds):
        for value in values:
            producer.send(job.topic, value)
    producer.flush(120)
    done = clock.done(job.records)
    producer.close()
    return done


def kafka_python_poll(job: Job) -> Done:
    from kafka import KafkaConsumer, TopicPartition

    clock = Clock()
    consumer = KafkaConsumer(
        bootstrap_servers=job.address, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
    seen = 0
    while seen < job.records:
        records = consumer.poll(timeout_ms=int(PATIENCE * 1000), max_records=BATCH)
        if not records:
            raise _nothing_came(seen, job)
        seen += sum(map(len, records.values()))
    done = clock.done(seen)
    consumer.close()
    return done


# confluent-kafka


def _confluent_produce(job: Job, rounds: Callable[[Any, list[bytes]], Callable[[], None]]) -> Done:
    """``rounds`` yields the work for each BATCH of records."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": job.address,
            "acks": "all",
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_SIZE,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    once = rounds(producer, payloads(job.size, BATCH))
    producer.list_topics(job.topic, 30)
    clock = Clock()
    for _ in range(job.rounds):
        once()
        while len(producer) > 400_000:
            producer.poll(0.005)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records were not acknowledged")
    return clock.done(job.records)


def confluent_produce(job: Job) -> Done:
    def rounds(producer: Any, values: list[bytes]) -> Callable[[], None]:
        def once() -> None:
            for value in values:
                producer.produce(job.topic, value)
            producer.poll(0)

        return once

    return _confluent_produce(job, rounds)


def confluent_produce_batch(job: Job) -> Done:
    def rounds(producer: Any, values: list[bytes]) -> Callable[[], None]:
        batch = [{"value": value} for value in values]

        def once() -> None:
            if (queued := producer.produce_batch(job.topic, batch)) != BATCH:
                raise RuntimeError(f"only {queued} of {BATCH} records were queued")

        return once

    return _confluent_produce(job, rounds)


def confluent_consume(job: Job) -> Done:
    from confluent_kafka import Consumer, TopicPartition

    clock = Clock()
    consumer = Consumer(
        {
            "bootstrap.servers": job.address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.assign([TopicPartition(job.topic, number, 0) for number in range(job.partitions)])
    seen = 0
    while seen < job.records:
        messages = consumer.consume(BATCH, PATIENCE)
        if not messages:
            raise _nothing_came(seen, job)
        if (error := messages[-1].error()) is not None:
            raise RuntimeError(str(error))
        seen += len(messages)
    done = clock.done(seen)
    consumer.close()
    return done


_ARROW = ("ottla_client.arrow", "ottla_client.consumer")
_OTTLA = ("numpy", "ottla_client.consumer")

PRODUCE: dict[str, Callable[[Job], Any]] = {
    "ottla send": partial(_send, ottla_producer),
    "ottla send_batch": ottla_send_batch,
    "ottla send_arrow": ottla_send_arrow,
    "aiokafka send": partial(_send, aiokafka_producer),
    "kafka-python send": kafka_python_send,
    "confluent-kafka produce": confluent_produce,
    "confluent-kafka produce_batch": confluent_produce_batch,
}
CONSUME: dict[str, Callable[[Job], Any]] = {
    "ottla async for": partial(_each, _OTTLA, ottla_consumer),
    "ottla poll": partial(_poll, _OTTLA, ottla_consumer, _ottla_records),
    "ottla poll_arrow": partial(_poll, _ARROW, ottla_consumer, _ottla_rows),
    "aiokafka async for": partial(_each, ("aiokafka",), aiokafka_consumer),
    "aiokafka getmany": partial(_poll, ("aiokafka",), aiokafka_consumer, _aiokafka_records),
    "kafka-python poll": kafka_python_poll,
    "confluent-kafka consume": confluent_consume,
}
JOBS = {**PRODUCE, **CONSUME}


def _check_all_there(job: Job) -> None:
    """Raise RuntimeError unless the new topic has as many records as were sent."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": job.address, "group.id": "bench"})
    there = 0
    for number in range(job.partitions):
        first, end = consumer.get_watermark_offsets(TopicPartition(job.topic, number), 30.0)
        there += end - first
    consumer.close()
    if there != job.records:
        raise RuntimeError(f"{job.records} records were sent, {there} are in the topic")


def main() -> None:
    name, text = sys.argv[1:]
    job = Job(**json.loads(text))
    result = JOBS[name](job)
    done = asyncio.run(result) if asyncio.iscoroutine(result) else result
    if name in PRODUCE:
        _check_all_there(job)
    print(json.dumps(asdict(done)))


if __name__ == "__main__":
    main()
