"""``ottla bench``: measure a broker with this client. Works with any Kafka cluster."""

from __future__ import annotations

import asyncio
import random
import string
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import cycle, islice
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from ottla_client.errors import RequestTimeoutError

from .shared.client_options import Command, option_group
from .shared.producer_options import ACKS, COMPRESSION, LINGER, producer_options
from .shared.progress import Progress, amount_of_bytes
from .shared.terminal import Console, options
from .shared.topic_checks import TOPIC, require_topics

if TYPE_CHECKING:
    from ottla_client.consumer import Consumer
    from ottla_client.producer import BatchDelivery, Producer
    from ottla_client.settings import ConnectionSettings

# Records per send_batch call, and calls in flight, as in a program that sends in bulk.
_IN_A_CALL = 1_000
_OPEN_CALLS = 64
# The number of values to cycle through, so that making them isn't measured.
_VALUES = 997
_PERCENTILES = (50, 95, 99)


@click.group()
def bench() -> None:
    """Measure a broker's throughput and latency.

    Each benchmark creates its own topic and deletes it afterwards.

    \b
    ottla bench produce
    ottla bench produce --acks 1 -z lz4 --partitions 4 --size 1000
    ottla bench consume --topic flights
    ottla bench roundtrip -b kafka:9092 --json
    """


def _with_topic(records: int) -> Callable[[Command], Command]:
    """The options of all benchmarks; ``records`` is the default number of records."""
    return option_group(
        click.option(
            "-n",
            "--records",
            type=click.IntRange(min=1),
            default=records,
            show_default=True,
            metavar="N",
            help="Set the number of records.",
        ),
        click.option(
            "-s",
            "--size",
            type=click.IntRange(min=0),
            default=100,
            show_default=True,
            metavar="BYTES",
            help="Set the size of a value. Records have no key.",
        ),
        click.option(
            "--partitions",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            metavar="N",
            help="Set the topic's number of partitions.",
        ),
        click.option(
            "--replication-factor",
            "replication",
            type=click.IntRange(min=1, max=32767),
            metavar="N",
            help="Set the topic's replication factor. Without it, the broker's default applies.",
        ),
        ACKS,
        COMPRESSION,
    )


@bench.command("produce")
@_with_topic(1_000_000)
@LINGER
@click.option("--single", is_flag=True, help="Send records one by one instead of in lists.")
@options
async def produce(console: Console, linger: int, single: bool, **setup: Any) -> None:
    """Measure how many records per second the broker accepts, and the time to their acknowledgement."""
    await _Bench(console, linger, **setup).produce(single)


@bench.command("consume")
@_with_topic(1_000_000)
@click.option("--topic", type=TOPIC, help="Consume this topic from its beginning, up to --records.")
@options
async def consume(console: Console, topic: str | None, **setup: Any) -> None:
    """Measure how many records per second the broker delivers."""
    await _Bench(console, 5, **setup).consume(topic)


@bench.command("roundtrip")
@_with_topic(1_000)
@options
async def roundtrip(console: Console, **setup: Any) -> None:
    """Measure the time of single records from a producer to a consumer."""
    await _Bench(console, 0, **setup).roundtrip()


class _Bench:
    def __init__(
        self,
        console: Console,
        linger: int,
        *,
        records: int,
        size: int,
        partitions: int,
        replication: int | None,
        acks: str,
        compression: str,
    ) -> None:
        self._console = console
        self._records = records
        self._partitions = partitions
        self._replication = replication
        self._linger = linger
        self._facts: dict[str, Any] = {
            "records": records,
            "bytes": size,
            "partitions": partitions,
            "acks": acks,
            "compression": compression,
        }
        letters = random.Random(1)
        text = string.ascii_uppercase
        values = ["".join(letters.choices(text, k=size)).encode() for _ in range(min(_VALUES, records))]
        self._values: Sequence[bytes] = list(islice(cycle(values), records))

    async def produce(self, single: bool) -> None:
        async with self._topic() as topic, self._producer() as producer:
            # The first record fetches metadata, a connection and a producer id, which aren't to be measured.
            await producer.send_and_wait(topic, self._values[0])
            with self._console.progress("produce", total=self._records) as bar:
                started = perf_counter()
                send = self._send_singly if single else self._send_lists
                latencies = await send(producer, topic, bar)
                seconds = perf_counter() - started
        self._report("produce", seconds, latencies, "Acknowledged")

    async def _send_lists(self, producer: Producer, topic: str, bar: Progress) -> list[float]:
        """Send all in lists. Returns the seconds until each list was acknowledged."""
        latencies: list[float] = []
        waiting: deque[tuple[float, BatchDelivery]] = deque()
        for first in range(0, self._records, _IN_A_CALL):
            sent = perf_counter()
            waiting.append((sent, await producer.send_batch(topic, self._values[first : first + _IN_A_CALL])))
            while waiting and (len(waiting) > _OPEN_CALLS or waiting[0][1].done()):
                await self._wait_for_oldest(waiting, latencies)
            bar.update(first)
        while waiting:
            await self._wait_for_oldest(waiting, latencies)
        return latencies

    async def _wait_for_oldest(
        self, waiting: deque[tuple[float, BatchDelivery]], latencies: list[float]
    ) -> None:
        sent, delivery = waiting.popleft()
        await delivery
        latencies.append(perf_counter() - sent)

    async def _send_singly(self, producer: Producer, topic: str, bar: Progress) -> list[float]:
        """Send all one by one. Returns the latencies of every hundredth record."""
        latencies: list[float] = []
        failures: list[Exception] = []

        def note(sent: float) -> Callable[[Any], None]:
            def done(delivery: Any) -> None:
                latencies.append(perf_counter() - sent)
                if (error := delivery.exception()) is not None:
                    failures.append(error)

            return done

        send = producer.send
        for index, value in enumerate(self._values):
            delivery = await send(topic, value)
            if index % 100 == 0:
                delivery.add_done_callback(note(perf_counter()))
                if index % _IN_A_CALL == 0:
                    bar.update(index)
                    await asyncio.sleep(0)
        await producer.flush(self._console.timeout)
        await asyncio.sleep(0)
        if failures:
            raise failures[0]
        return latencies

    async def consume(self, topic: str | None) -> None:
        from ottla_client.consumer.settings import ConsumerSettings
        from ottla_client.types import TopicPartition

        if topic is not None:
            await require_topics(self._console, ConsumerSettings, [topic])
        async with self._topic(topic) as name, self._consumer() as consumer:
            if topic is None:
                async with self._producer() as producer:
                    with self._console.progress("make records", total=self._records) as bar:
                        await self._send_lists(producer, name, bar)
            partitions = [TopicPartition(name, each) for each in await consumer.partitions_for(name)]
            first, end = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
            taken = size = 0
            latencies: list[float] = []
            with self._console.progress("consume", total=self._records) as bar:
                consumer.assign(partitions)
                started = asked = perf_counter()
                for partition in partitions:
                    consumer.seek(partition, first[partition])
                while taken < self._records and await _is_behind(consumer, end):
                    records = await consumer.poll(
                        timeout_ms=int(self._console.timeout * 1000), max_records=10_000
                    )
                    now = perf_counter()
                    latencies.append(now - asked)
                    asked = now
                    taken += len(records)
                    size += sum([len(record.value) for record in records if record.value is not None])
                    bar.update(taken)
                seconds = perf_counter() - started
        found = {"records": taken, "bytes": round(size / taken) if taken else 0}
        if topic is None:
            self._facts |= found
        else:
            self._facts = {"topic": topic, **found, "partitions": len(partitions)}
        self._report("consume", seconds, latencies, "Polls took")

    async def roundtrip(self) -> None:
        from ottla_client.types import TopicPartition

        latencies: list[float] = []
        async with self._topic() as topic, self._producer() as producer, self._consumer() as consumer:
            await producer.send_and_wait(topic, self._values[0])
            partitions = [TopicPartition(topic, each) for each in await consumer.partitions_for(topic)]
            consumer.assign(partitions)
            for partition, offset in (await consumer.end_offsets(partitions)).items():
                consumer.seek(partition, offset)
            timeout = self._console.timeout
            with self._console.progress("round trips", total=self._records) as bar:
                started = perf_counter()
                for count, value in enumerate(self._values):
                    sent = perf_counter()
                    await producer.send(topic, value)
                    try:
                        async with asyncio.timeout(timeout):
                            await consumer.getone()
                    except TimeoutError:
                        raise RequestTimeoutError(
                            f"record {count + 1} did not come back within {timeout:g} s"
                        ) from None
                    latencies.append(perf_counter() - sent)
                    bar.update(count)
                seconds = perf_counter() - started
        self._report("roundtrip", seconds, latencies, "There and back")

    def _report(self, what: str, seconds: float, latencies: list[float], meaning: str) -> None:
        facts = self._facts
        records = facts["records"]
        latencies.sort()
        rate = records / max(seconds, 1e-9)
        found = {f"p{p}_ms": _percentile(latencies, p) for p in _PERCENTILES}
        found["max_ms"] = round(latencies[-1] * 1000, 3) if latencies else 0.0
        if self._console.as_json:
            rates = {"records_per_second": round(rate), "bytes_per_second": round(rate * facts["bytes"])}
            self._console.emit({"bench": what, **facts, "seconds": round(seconds, 3), **rates, **found})
            return
        setting = ", ".join(
            f"{name} {value}" for name, value in facts.items() if name not in ("records", "bytes")
        )
        self._console.details(
            {
                "Bench": f"{what}, {setting}",
                "Records": f"{records:,} of {facts['bytes']:,} B in {seconds:.2f} s",
                "Rate": f"{rate:,.0f} records/s, {amount_of_bytes(rate * facts['bytes'])}/s",
                meaning: ", ".join(
                    f"{name.removesuffix('_ms')} {value:.2f} ms" for name, value in found.items()
                ),
            }
        )

    @asynccontextmanager
    async def _topic(self, name: str | None = None) -> AsyncIterator[str]:
        """A topic for this run, deleted afterwards; an existing one (``name``) is kept."""
        if name is not None:
            yield name
            return
        from ottla_client.admin import Admin, NewTopic
        from ottla_client.admin.base import AdminSettings

        admin = Admin(**self._console.settings.of(AdminSettings, _all_settings()))
        await admin.start(self._console.settings.connect_timeout)
        try:
            made = f"ottla-bench-{uuid4().hex[:8]}"
            topic = NewTopic(made, partitions=self._partitions, replication_factor=self._replication or -1)
            await admin.create_topics([topic], timeout=self._console.timeout)
            try:
                yield made
            finally:
                await admin.delete_topics([made], timeout=self._console.timeout)
        finally:
            await admin.close()

    @asynccontextmanager
    async def _producer(self) -> AsyncIterator[Producer]:
        from ottla_client.producer import Producer
        from ottla_client.producer.settings import ProducerSettings

        acks, compression = self._facts["acks"], self._facts["compression"]
        options = self._console.settings.of(
            ProducerSettings,
            _all_settings(),
            client_id="ottla-bench",
            **producer_options(acks, compression, self._linger),
        )
        producer = Producer(**options)
        await producer.start()
        try:
            yield producer
        finally:
            await producer.close(self._console.timeout)

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[Consumer]:
        from ottla_client.consumer import Consumer
        from ottla_client.consumer.settings import ConsumerSettings

        options = self._console.settings.of(ConsumerSettings, _all_settings(), client_id="ottla-bench")
        consumer = Consumer(**options)
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.close()


def _all_settings() -> tuple[type[ConnectionSettings], ...]:
    """The settings of every client that a bench makes: ``-X`` takes options of any of them."""
    from ottla_client.admin.base import AdminSettings
    from ottla_client.consumer.settings import ConsumerSettings
    from ottla_client.producer.settings import ProducerSettings

    return AdminSettings, ConsumerSettings, ProducerSettings


async def _is_behind(consumer: Consumer, end: dict[Any, int]) -> bool:
    for partition, offset in end.items():
        if await consumer.position(partition) < offset:
            return True
    return False


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Milliseconds below which ``percent`` of the values are."""
    if not ordered:
        return 0.0
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000, 3)
