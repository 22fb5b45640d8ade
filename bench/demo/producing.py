"""The producer: confluent-kafka, idempotent (hence acks=all), in a process of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Any

from bench.demo import flights


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """How many flights are acknowledged so far; ``done`` after the last, with those that failed."""

    count: int
    failed: int
    seconds: float
    done: bool


def produce(address: str, ready: Event, go: Event, lead: Any, reports: Queue[Acknowledged]) -> None:
    """Produce every flight once ``go`` is set.

    ``lead`` is a shared number: how many flights may be handed to the client at most by now. It rises as they
    are consumed, so that the kill comes while both sides are at work.
    """
    from confluent_kafka import KafkaError, Message, Producer

    messages = [flights.message(number, row) for number, row in enumerate(flights.rows())]
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.max.ms": 500,
            "queue.buffering.max.messages": len(messages) + 1,
            "logger": _silent(),
        }
    )
    acknowledged = failed = 0

    def delivered(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged, failed
        if error is None:
            acknowledged += 1
        else:
            failed += 1

    ready.set()
    go.wait()
    began = time.perf_counter()
    told = began

    def tell(done: bool) -> None:
        reports.put(Acknowledged(acknowledged, failed, time.perf_counter() - began, done))

    for number, (key, value) in enumerate(messages):
        while number >= lead.value:
            producer.poll(0.005)
            tell(False)
        producer.produce(flights.TOPIC, value, key, on_delivery=delivered)
        if number % 500 == 0:
            producer.poll(0)
            if time.perf_counter() - told > 0.02:
                told = time.perf_counter()
                tell(False)
    while producer.flush(0.05):
        tell(False)
    tell(True)


def _silent() -> Any:
    """A logger that keeps the client's notes about the broken connection off the screen."""
    import logging

    logger = logging.getLogger("producer")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
