"""The load client: confluent-kafka (librdkafka, in C) in its own process.

``python -m bench.load JSON`` does one job and writes one line of JSON with its time and number of records. Payloads
are built before the clock starts.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

BATCH = 10_000
_TURN = 20
"""The transactions that are made before as many flushes."""
# Records in flight: enough to keep the client busy without excessive memory.
_UNDER_WAY = 400_000

_WORDS = (
    "departure", "arrival", "delay", "carrier", "flight", "origin", "destination", "hour", "distance",
    "airport", "weather", "visibility", "pressure", "wind", "humidity", "runway", "gate", "boarding",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """One load: ``kind`` is produce, consume, latency, transactions or flushes (of ``together`` records each).

    With ``own`` before it, transactions are those of ``ottla_client``.

    ``keys``: what is produced has random keys of 16 B, of so many.
    ``options`` are further ones of the client, by librdkafka's names.
    """

    kind: str
    address: str
    topic: str
    records: int
    size: int = 100
    partitions: int = 4
    acks: str = "1"
    codec: str = "none"
    together: int = 1
    keys: int = 0
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a job: seconds, records, and in ms each round trip of ``latency``, each commit or flush.

    ``flushes``: of transactions, what the same client did in turns with them, without them.
    """

    seconds: float
    records: int
    latencies_ms: list[float]
    flushes: Done | None = None

    @property
    def rate(self) -> float:
        return self.records / self.seconds


def payloads(size: int, count: int) -> list[bytes]:
    """Make different payloads of one size, of words and numbers, that compress about as records do."""
    chance = random.Random(size)
    made = []
    for _ in range(count):
        text = ""
        while len(text) < size:
            text += f"{chance.choice(_WORDS)}={chance.randrange(100_000)};"
        made.append(text[:size].encode())
    return made


def run(job: Job) -> Done:
    """Do a job in its own process. Raises RuntimeError with the client's last lines if it fails."""
    command = [sys.executable, "-m", "bench.load", json.dumps(asdict(job))]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the load client failed at {job}:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["flushes"]:
        found["flushes"] = Done(**found["flushes"])
    return Done(**found)


def _produce(job: Job) -> Done:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": job.address,
            "linger.ms": 5,
            "batch.num.messages": BATCH,
            "acks": job.acks,
            "compression.type": job.codec,
            "queue.buffering.max.messages": 2 * _UNDER_WAY,
            "queue.buffering.max.kbytes": 2_000_000,
            **job.options,
        }
    )
    batch: list[Any] = [{"value": value} for value in payloads(job.size, BATCH)]
    producer.list_topics(job.topic, 30)
    rounds = job.records // BATCH
    chance = random.Random(1)
    began = time.perf_counter()
    for index in range(rounds):
        if job.keys:
            for record in batch:
                record["key"] = b"%016d" % chance.randrange(job.keys)
        queued = producer.produce_batch(job.topic, batch, partition=index % job.partitions)
        if queued != BATCH:
            raise RuntimeError(f"only {queued} of {BATCH} records were queued")
        while len(producer) > _UNDER_WAY:
            producer.poll(0.005)
    left = producer.flush(120)
    seconds = time.perf_counter() - began
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")
    return Done(seconds, rounds * BATCH, [])


def _consumer(job: Job) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": job.address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 10,
            **job.options,
        }
    )
    start = 0 if job.kind == "consume" else -1
    consumer.assign([TopicPartition(job.topic, number, start) for number in range(job.partitions)])
    return consumer


def _consume(job: Job) -> Done:
    began = time.perf_counter()
    consumer = _consumer(job)
    seen = 0
    while seen < job.records:
        messages = consumer.consume(BATCH, 10.0)
        if not messages:
            raise RuntimeError(f"nothing came for 10 s after {seen} of {job.records} records")
        for message in (messages[0], messages[-1]):
            if message.error():
                raise RuntimeError(str(message.error()))
        seen += len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    return Done(seconds, seen, [])


def _latency(job: Job) -> Done:
    """Measure one record at a time, from before it is produced until the consumer has it."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": job.address, "linger.ms": 0, "acks": job.acks, **job.options})
    consumer = _consumer(job)
    values = payloads(job.size, 1000)
    # Once the first records arrive, the consumer is at the end of the topic.
    for _ in range(60):
        producer.produce(job.topic, values[0], partition=0)
        producer.flush(10)
        if consumer.poll(0.5) is not None:
            break
    while consumer.poll(0.5) is not None:
        pass
    taken: list[float] = []
    warm_up = max(job.records // 10, 50)
    began = time.perf_counter()
    for index in range(warm_up + job.records):
        sent = time.perf_counter()
        producer.produce(job.topic, values[index % 1000], partition=0)
        producer.poll(0)
        message = consumer.poll(10.0)
        if message is None or message.error():
            raise RuntimeError(f"a record did not come back: {message and message.error()}")
        if index >= warm_up:
            taken.append((time.perf_counter() - sent) * 1000)
    seconds = time.perf_counter() - began
    producer.flush(10)
    consumer.close()
    return Done(seconds, job.records, taken)


def _in_turns(job: Job, *groups: Callable[[], float]) -> list[Done]:
    """Time each of ``groups``, by turns, so that all meet the machine at the same speed.

    A group produces its records, and returns when it began to commit or flush them. The seconds are the median turn's,
    times the turns: what stalls one of them isn't the broker's.
    """
    turns = max(1, job.records // job.together // _TURN)
    seconds: list[list[float]] = [[] for _ in groups]
    taken: list[list[float]] = [[] for _ in groups]
    for turn in range(-1, turns):
        for number, group in enumerate(groups):
            began = time.perf_counter()
            for _ in range(_TURN):
                ended = group()
                if turn >= 0:
                    taken[number].append((time.perf_counter() - ended) * 1000)
            if turn >= 0:
                seconds[number].append(time.perf_counter() - began)
    records = turns * _TURN * job.together
    return [
        Done(median(times) * turns, records, latencies)
        for times, latencies in zip(seconds, taken, strict=True)
    ]


def _groups(job: Job) -> Done:
    """Produce groups of ``together`` records, each committed as a transaction or flushed."""
    from confluent_kafka import Producer

    settings: dict[str, Any] = {
        "bootstrap.servers": job.address,
        "linger.ms": 5,
        "acks": job.acks,
        "enable.idempotence": True,
        **job.options,
    }
    idempotent = Producer(settings)
    idempotent.list_topics(job.topic, 30)
    values = payloads(job.size, job.together)

    def send(producer: Producer) -> float:
        for number, value in enumerate(values):
            producer.produce(job.topic, value, partition=number % job.partitions)
        return time.perf_counter()

    def flush() -> float:
        ended = send(idempotent)
        if idempotent.flush(60):
            raise RuntimeError("records were not acknowledged")
        return ended

    if job.kind == "flushes":
        return _in_turns(job, flush)[0]
    transactional = Producer({**settings, "transactional.id": job.topic})
    transactional.list_topics(job.topic, 30)
    transactional.init_transactions(60)

    def transact() -> float:
        transactional.begin_transaction()
        ended = send(transactional)
        transactional.commit_transaction(60)
        return ended

    done, flushes = _in_turns(job, transact, flush)
    return replace(done, flushes=flushes)


def _own_groups(job: Job) -> Done:
    """Produce such groups with ``ottla_client``."""
    from ottla_client.sync import Producer

    values = payloads(job.size, job.together)

    def send(producer: Producer) -> float:
        for number, value in enumerate(values):
            producer.send(job.topic, value, partition=number % job.partitions)
        return time.perf_counter()

    with (
        Producer(job.address, acks=job.acks, linger_ms=5, transactional_id=job.topic) as transactional,
        Producer(job.address, acks=job.acks, linger_ms=5) as idempotent,
    ):

        def transact() -> float:
            with transactional.transaction():
                return send(transactional)

        def flush() -> float:
            ended = send(idempotent)
            idempotent.flush()
            return ended

        done, flushes = _in_turns(job, transact, flush)
        return replace(done, flushes=flushes)


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    kinds = {
        "produce": _produce,
        "consume": _consume,
        "latency": _latency,
        "transactions": _groups,
        "flushes": _groups,
        "own transactions": _own_groups,
    }
    done = kinds[job.kind](job)
    print(json.dumps(asdict(done)))


if __name__ == "__main__":
    main()
