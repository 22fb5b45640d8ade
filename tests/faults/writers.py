"""Producers that write during faults: librdkafka's, and the bundled client's."""

from __future__ import annotations

import json
import logging
import time
from abc import abstractmethod
from typing import Any

import confluent_kafka as ck
from tests.faults.history import Acked, History, Value
from tests.faults.load import EAGER, Client, Clock

from ottla_client.errors import RequestTimeoutError
from ottla_client.sync import Delivery, Producer

_NEVER_MS = 600_000
_REQUEST_MS = 5_000
_STATISTICS_MS = 5_000
# Enough in flight to lose, but not so much that sending it later takes long.
_MOST_UNDER_WAY = 400


class Writer(Client):
    """A producer with acks=all that keeps sending a record to each partition.

    ``gap`` is the longest time between two acknowledgements since it was last set to 0, ``last`` the time of the last
    one, ``latest`` the same by partition, ``diary`` its notes on new epochs.
    """

    def __init__(
        self,
        name: str,
        history: History,
        clock: Clock,
        topic: str,
        partitions: int,
        idempotent: bool,
        pause: float,
    ) -> None:
        super().__init__(name, history, clock)
        self.gap = 0.0
        self.last = clock()
        self.latest: dict[int, float] = dict.fromkeys(range(partitions), 0.0)
        self.diary: list[str] = []
        self.topic = topic
        self._pause = pause
        self._number = 0
        self._abandoned = False
        history.idempotent[name] = idempotent

    def step(self) -> None:
        for partition in self.latest:
            self.history.sent[self.name, partition] = self._number + 1
            self.send(partition, Value(self.name, self._number))
        self._number += 1
        self.work(self._pause)
        while self.under_way() > _MOST_UNDER_WAY and not self._stopping.is_set():
            self.work(0.05)
        time.sleep(self._pause)

    def finish(self) -> None:
        left = self.close(0 if self._abandoned else 60)
        if left:
            self.history.complaints.append(f"{self.name}: {left} records were never answered")

    def abandon(self) -> None:
        """Drop records in flight: the run has failed."""
        self._abandoned = True
        self.stop()

    def acknowledged(self, partition: int, value: Value, offset: int) -> None:
        """Called once a record is; from any thread."""
        now = self.clock()
        self.gap = max(self.gap, now - self.last)
        self.last = self.latest[partition] = now
        self.history.acked.append(Acked(partition, offset, value, now))

    def refused(self, partition: int, value: Value, error: object) -> None:
        """Called when the client gives a record up, which its settings forbid."""
        self.history.complaints.append(
            f"{self.name}: {partition}:{value.number} at {self.clock():.3f} s: {error}"
        )

    @abstractmethod
    def send(self, partition: int, value: Value) -> None:
        """Send a record."""

    @abstractmethod
    def work(self, seconds: float) -> None:
        """Let the client work for about ``seconds``."""

    @abstractmethod
    def under_way(self) -> int:
        """How many records are not acknowledged yet."""

    @abstractmethod
    def state(self) -> str:
        """What it waits for."""

    @abstractmethod
    def close(self, timeout: float) -> int:
        """Wait for the rest. Returns how many records are still unacknowledged."""


class OttlaWriter(Writer):
    """The bundled client, idempotent, with five batches in flight.

    It requests a new epoch only if a broker has lost something, so every record written twice is an anomaly.
    """

    def __init__(
        self,
        name: str,
        history: History,
        clock: Clock,
        bootstrap: str,
        topic: str,
        partitions: int,
        pause: float,
    ) -> None:
        super().__init__(name, history, clock, topic, partitions, True, pause)
        self._under_way: set[tuple[int, Value]] = set()
        self._producer = Producer(
            bootstrap,
            linger_ms=2,
            max_in_flight_requests_per_connection=5,
            delivery_timeout_ms=_NEVER_MS,
            request_timeout_ms=_REQUEST_MS,
            retry_backoff_ms=50,
            retry_backoff_max_ms=200,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            metadata_max_age_ms=5_000,
        )
        self._producer.start()

    def send(self, partition: int, value: Value) -> None:
        key = (partition, value)

        def delivered(delivery: Delivery) -> None:
            error = delivery.exception()
            self._under_way.discard(key)
            if error is None:
                self.acknowledged(partition, value, delivery.result().offset)
            else:
                self.refused(partition, value, error)

        self._under_way.add(key)
        self._producer.send(self.topic, value.encode(), partition=partition).add_done_callback(delivered)

    def work(self, seconds: float) -> None:
        time.sleep(seconds)

    def under_way(self) -> int:
        return len(self._under_way)

    def state(self) -> str:
        return f"{self.under_way()} records under way"

    def close(self, timeout: float) -> int:
        try:
            self._producer.close(timeout)
        except RequestTimeoutError:
            return self.under_way()
        return 0


class _Diary(logging.Handler):
    """Keeps librdkafka's log of new epochs: why it gave up what it had sent."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "bump" in text.lower():
            self._writer.diary.append(f"{self._writer.name} at {self._writer.clock():.3f} s: {text}")
            self._writer.history.bumped.add(self._writer.name)


class RdkafkaWriter(Writer):
    """librdkafka. ``in_flight``: how many batches an idempotent producer has in flight."""

    def __init__(
        self,
        name: str,
        history: History,
        clock: Clock,
        bootstrap: str,
        topic: str,
        partitions: int,
        pause: float,
        *,
        idempotent: bool,
        in_flight: int = 1,
    ) -> None:
        super().__init__(name, history, clock, topic, partitions, idempotent, pause)
        self._statistics: dict[str, Any] = {}
        logger = logging.Logger(name)
        logger.addHandler(_Diary(self))
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "max.in.flight": in_flight,
                "linger.ms": 2,
                "request.timeout.ms": _REQUEST_MS,
                "delivery.timeout.ms": _NEVER_MS,
                "statistics.interval.ms": _STATISTICS_MS,
                "message.send.max.retries": 1_000_000,
                "compression.type": "lz4" if idempotent else "none",
                **EAGER,
                **({"debug": "eos", "log_level": 7} if idempotent else {}),
            },
            error_cb=self.failed,
            stats_cb=self._take_statistics,
            logger=logger,
        )

    def _take_statistics(self, text: str) -> None:
        self._statistics = json.loads(text)

    def send(self, partition: int, value: Value) -> None:
        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            offset = message.offset()
            if error is None:
                self.acknowledged(partition, value, -1 if offset is None else offset)
            else:
                self.refused(partition, value, error)

        self._producer.produce(self.topic, value.encode(), partition=partition, on_delivery=delivered)

    def work(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def under_way(self) -> int:
        return len(self._producer)

    def state(self) -> str:
        """librdkafka's statistics from some seconds ago: its connections and queues."""
        brokers = [
            f"{name} {broker['state']} {broker['outbuf_cnt']} out {broker['waitresp_cnt']} under way"
            for name, broker in self._statistics.get("brokers", {}).items()
        ]
        topic = self._statistics.get("topics", {}).get(self.topic, {})
        partitions = [
            f"{name} led by {each['leader']}: {each['msgq_cnt']} + {each['xmit_msgq_cnt']} queued,"
            f" {each['msgs_inflight']} under way"
            for name, each in topic.get("partitions", {}).items()
            if name != "-1"
        ]
        return "; ".join([*brokers, *partitions])

    def close(self, timeout: float) -> int:
        return int(self._producer.flush(timeout))


def attempt(bootstrap: str, topic: str, partitions: int, timeout: float = 20.0) -> str:
    """What a new producer gets from each partition. Its records don't count: the run has failed."""
    received: dict[int, str] = dict.fromkeys(range(partitions), "nothing")
    producer = ck.Producer({"bootstrap.servers": bootstrap, "acks": "all", **EAGER})

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        received[message.partition() or 0] = str(error or f"acknowledged at {message.offset()}")

    for partition in range(partitions):
        producer.produce(topic, b"attempt", partition=partition, on_delivery=delivered)
    producer.flush(timeout)
    return f"a new producer gets {received}"
