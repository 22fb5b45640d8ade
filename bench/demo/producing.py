"""The producers, each in its own process: confluent-kafka and ottla_client, both idempotent and so with acks=all."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from bench.demo import flights

REPORT_SECONDS = 0.02
CHECK_EVERY = 500
"""Flights handed to the client between two checks of acknowledgements and of ``lead``."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The flights acknowledged and failed so far; ``done`` after the last."""

    count: int
    failed: int
    seconds: float
    done: bool


class FlightTally:
    """Counts acknowledged flights, and reports them every ``REPORT_SECONDS``."""

    def __init__(self, reports: Queue[Acknowledged]) -> None:
        self.acknowledged = self.failed = 0
        self._reports = reports
        self._began = self._reported = time.perf_counter()

    def add(self, error: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1

    def report(self, done: bool = False) -> None:
        now = time.perf_counter()
        if done or now - self._reported > REPORT_SECONDS:
            self._reported = now
            self._reports.put(Acknowledged(self.acknowledged, self.failed, now - self._began, done))


def produce(
    client: str,
    address: str,
    topic: str,
    file: Path,
    ready: Event,
    go: Event,
    lead: Any,
    reports: Queue[Acknowledged],
) -> None:
    """Produce every flight of the file once ``go`` is set.

    ``lead`` is a shared number: the flights that may be handed to the client by now. It rises as they are consumed,
    so that both sides are busy when the kill comes.
    """
    # Keep the client's log of the broken connection off the screen.
    logging.disable(logging.CRITICAL)
    messages = list(flights.read_messages(file))

    def begin() -> FlightTally:
        ready.set()
        go.wait()
        return FlightTally(reports)

    if client == "ottla_client":
        asyncio.run(_produce_with_ottla(address, topic, messages, begin, lead))
    else:
        _produce_with_confluent(address, topic, messages, begin, lead)


def _produce_with_confluent(
    address: str,
    topic: str,
    messages: list[tuple[bytes, bytes]],
    begin: Callable[[], FlightTally],
    lead: Any,
) -> None:
    from confluent_kafka import KafkaError, Message, Producer

    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.max.ms": 500,
            "queue.buffering.max.messages": len(messages) + 1,
            "logger": logging.getLogger("producer"),
        }
    )
    tally = begin()

    def delivered(error: KafkaError | None, _: Message) -> None:
        tally.add(error)

    for number, (key, value) in enumerate(messages):
        if number % CHECK_EVERY == 0:
            producer.poll(0)
            tally.report()
            while number >= lead.value:
                producer.poll(0.005)
                tally.report()
        producer.produce(topic, value, key, on_delivery=delivered)
    while producer.flush(0.05):
        tally.report()
    tally.report(done=True)


async def _produce_with_ottla(
    address: str,
    topic: str,
    messages: list[tuple[bytes, bytes]],
    begin: Callable[[], FlightTally],
    lead: Any,
) -> None:
    from ottla_client import Delivery, Producer

    async with Producer(address) as producer:
        tally = begin()

        pending: deque[Delivery] = deque()

        def count() -> None:
            # Deliveries behind an open one are counted when that one is done.
            while pending and pending[0].done():
                tally.add(pending.popleft().exception())
            tally.report()

        for number, (key, value) in enumerate(messages):
            if number % CHECK_EVERY == 0:
                count()
                while number >= lead.value:
                    await asyncio.sleep(0.005)
                    count()
            pending.append(await producer.send(topic, value, key))
        while pending:
            await asyncio.sleep(0.01)
            count()
    tally.report(done=True)
