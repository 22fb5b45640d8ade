"""Clients that work during faults, each in a thread, and record what they are promised and read.

Consumers are here, producers in ``writers.py``.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
from tests.faults.history import Commit, Got, History, Run, Value

GROUP = "group"

# Find a new leader quickly; the other settings are defaults.
EAGER: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "log_level": 0,
}


class Clock:
    """Seconds since the run began."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() - self._began


class Client(ABC):
    """A thread that calls :meth:`step` until it is stopped."""

    def __init__(self, name: str, history: History, clock: Clock) -> None:
        self.name = name
        self.history = history
        self.clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self, timeout: float = 90.0) -> None:
        self._thread.join(timeout)
        if self._thread.is_alive():
            self.history.complaints.append(f"{self.name} has not come to its end within {timeout:g} s")

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.step()
            self.finish()
        except Exception as error:
            self.history.complaints.append(f"{self.name}: {type(error).__name__}: {error}")

    @abstractmethod
    def step(self) -> None:
        """Work for a moment."""

    def finish(self) -> None:  # noqa: B027
        """Finish the work at the end."""

    def failed(self, error: ck.KafkaError) -> None:
        if error.fatal():
            self.history.complaints.append(f"{self.name}: fatal at {self.clock():.3f} s: {error}")


def _consumer(
    bootstrap: str, group: str, on_error: Callable[[ck.KafkaError], None], **more: Any
) -> ck.Consumer:
    return ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            # No silent jumps: report an offset out of range, or a log truncated below it.
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 100,
            **EAGER,
            **more,
        },
        error_cb=on_error,
    )


def _take(client: Client, run: Run, messages: list[ck.Message]) -> None:
    for message in messages:
        error = message.error()
        if error is None:
            run.got.append(Got(message.partition(), message.offset(), Value.decode(message.value())))
        elif error.code() == ck.KafkaError._AUTO_OFFSET_RESET:
            client.history.complaints.append(
                f"{client.name}: at {client.clock():.3f} s partition {message.partition()},"
                f" offset {message.offset()}: {error}"
            )


class Reader(Client):
    """Reads every partition from the beginning, outside of any group."""

    def __init__(
        self, name: str, history: History, clock: Clock, bootstrap: str, topic: str, partitions: int
    ) -> None:
        super().__init__(name, history, clock)
        self.run = Run(name, clock())
        self.ends: dict[int, int] = {}
        history.readers.append(self.run)
        self._consumer = _consumer(bootstrap, f"no group of {name}", self.failed)
        self._consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(partitions)])

    def step(self) -> None:
        self._take(self._consumer.consume(500, 0.1))

    def _take(self, messages: list[ck.Message]) -> None:
        _take(self, self.run, messages)

    def read_to(self, ends: dict[int, int], timeout: float) -> None:
        """Once stopped: read on to these offsets, or until the time is up."""
        deadline = time.monotonic() + timeout
        last = {got.partition: got.offset for got in self.run.got}
        while time.monotonic() < deadline and any(last.get(p, -1) < end - 1 for p, end in ends.items()):
            messages = self._consumer.consume(500, 0.1)
            self._take(messages)
            last.update((m.partition(), m.offset()) for m in messages if m.error() is None)
        self._consumer.close()


class GroupMember(Client):
    """Subscribes, and commits synchronously what it has read."""

    def __init__(
        self, name: str, history: History, clock: Clock, bootstrap: str, topic: str, seed: int
    ) -> None:
        super().__init__(name, history, clock)
        self.committed_at = 0.0
        self.rebalances = 0
        self._chance = random.Random(seed)
        self._run_now: Run | None = None
        self._positions: dict[int, int] = {}
        self._topic = topic
        self._next_commit = 0.0
        self._consumer = _consumer(bootstrap, GROUP, self.failed, **{"session.timeout.ms": 6000})
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.rebalances += 1
        self._positions.clear()
        self._run_now = Run(self.name, self.clock())
        self.history.group.append(self._run_now)

    def _revoked(self, _: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._run_now = None
        self._positions.clear()

    def step(self) -> None:
        messages = self._consumer.consume(200, 0.1)
        if self._run_now is None:
            return
        _take(self, self._run_now, messages)
        for message in messages:
            if message.error() is None:
                self._positions[message.partition()] = message.offset() + 1
        if self._positions and self.clock() >= self._next_commit:
            self._next_commit = self.clock() + self._chance.uniform(0.1, 0.5)
            self._commit()

    def _commit(self) -> None:
        offsets = [ck.TopicPartition(self._topic, p, offset) for p, offset in self._positions.items()]
        began = self.clock()
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
        except ck.KafkaException:
            return  # unknown or refused: no promise
        self.committed_at = self.clock()
        for one in done or []:
            if one.error is None:
                self.history.commits.append(Commit(one.partition, one.offset, began, self.committed_at))

    def finish(self) -> None:
        if self._run_now is not None:
            self._commit()
        self._consumer.close()


class Inquirer(Client):
    """Keeps fetching the group's committed offsets."""

    def __init__(
        self, name: str, history: History, clock: Clock, bootstrap: str, topic: str, partitions: int
    ) -> None:
        super().__init__(name, history, clock)
        self._partitions = [ck.TopicPartition(topic, number) for number in range(partitions)]
        self._consumer = _consumer(bootstrap, GROUP, self.failed)

    def begin(self) -> None:
        """Commit offset 0 everywhere, so that the group has a start."""
        zero = [ck.TopicPartition(each.topic, each.partition, 0) for each in self._partitions]
        deadline = time.monotonic() + 30
        while True:
            try:
                self._consumer.commit(offsets=zero, asynchronous=False)
                return
            except ck.KafkaException:
                if time.monotonic() > deadline:
                    raise

    def step(self) -> None:
        began = self.clock()
        try:
            fetched = self._consumer.committed(self._partitions, timeout=10)
        except ck.KafkaException:
            time.sleep(0.1)
            return
        ended = self.clock()
        for one in fetched:
            if one.error is None:
                self.history.fetched.append(Commit(one.partition, one.offset, began, ended))
        time.sleep(0.3)

    def finish(self) -> None:
        self._consumer.close()


def read_log(
    bootstrap: str, topic: str, partitions: int, acked: dict[int, int], timeout: float = 120.0
) -> tuple[dict[int, list[Got]], str]:
    """Read the whole topic with a new consumer. Returns the records, and an error if there was one.

    ``acked`` is the end of the acknowledged records by partition; a new leader may learn only later that they are
    committed.
    """
    errors: list[str] = []
    consumer = _consumer(bootstrap, "no group of the last reader", lambda error: None)
    log: dict[int, list[Got]] = {}
    try:
        deadline = time.monotonic() + timeout
        for partition in range(partitions):
            place = ck.TopicPartition(topic, partition, 0)
            high = _end(consumer, place, acked.get(partition, 0))
            records = log[partition] = []
            consumer.assign([place])
            while (not records or records[-1].offset < high - 1) and high > 0:
                for message in consumer.consume(1000, 0.5):
                    error = message.error()
                    if error is None:
                        records.append(Got(partition, message.offset(), Value.decode(message.value())))
                    else:
                        errors.append(str(error))
                if time.monotonic() > deadline or errors:
                    got = records[-1].offset if records else -1
                    return log, f"partition {partition} was read to {got} of {high}: {errors[:3]}"
    finally:
        consumer.close()
    return log, ""


def _end(consumer: ck.Consumer, place: ck.TopicPartition, least: int) -> int:
    """A partition's end offset; waits up to 20 s for it to reach ``least``."""
    deadline = time.monotonic() + 20
    while True:
        try:
            _, high = consumer.get_watermark_offsets(place, timeout=10)
        except ck.KafkaException:
            # Leadership moves even now, back to preferred replicas.
            if time.monotonic() > deadline:
                raise
            continue
        if high >= least or time.monotonic() > deadline:
            return int(high)
        time.sleep(0.1)
