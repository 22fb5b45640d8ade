"""What may happen to a transactional producer when a request of its is held back: one function for each case.

A producer is driven step by step, whatever its language. Each function returns what a read_committed reader sees in
the end, beside what it should see; with ``--kafka`` the same steps show what Apache Kafka 3.9.1 makes of them.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Protocol

import confluent_kafka as ck
from tests.support.late_frames import END_TXN, PRODUCE, TXN_OFFSET_COMMIT
from tests.support.topics import create_topic

from ottla_client import ClientError, OffsetAndMetadata, TopicPartition
from ottla_client.sync import Producer

TOPIC = "t"
GROUP = "g"

SETTINGS = {
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "offsets.topic.num.partitions": 1,
}


class StepFailed(Exception):
    """A step of a producer failed with its client's error."""


class Driver(Protocol):
    """A transactional producer. Each step raises StepFailed when the client reports an error."""

    def begin(self) -> None: ...
    def send(self, value: str) -> None:
        """Hand a record over, without waiting for its acknowledgement."""

    def flush(self) -> None: ...
    def offsets(self, offset: int) -> None:
        """Put an offset of GROUP into the transaction."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def notice_cut(self) -> None:
        """Wait until the client knows of a cut connection: if it aborts just before, librdkafka flushes for ever."""

    def close(self) -> None: ...


class HeldRequest(Protocol):
    """See :class:`tests.support.late_frames.Held`."""

    def wait(self) -> None: ...
    def release(self) -> None: ...
    def deliver(self) -> bytes | None: ...


class Network(Protocol):
    """See :class:`tests.support.late_frames.LateFrames`."""

    def hold(self, api_key: int, *, cut: bool = True) -> HeldRequest: ...


class ConfluentDriver:
    """confluent-kafka's producer."""

    def __init__(self, address: str, topic: str = TOPIC) -> None:
        self._topic = topic
        self._cut = False
        # Reports in a row, since the cut, in which nothing waits for an answer; the first may be from before.
        self._quiet = 0
        log = logging.Logger("librdkafka")
        log.addFilter(self._logged)
        self._producer = ck.Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": f"late-{topic}",
                # Longer than it takes to notice a cut, so that nothing is sent again meanwhile.
                "reconnect.backoff.ms": 300,
                "retry.backoff.ms": 10,
                "socket.timeout.ms": 6000,
                "linger.ms": 0,
                "logger": log,
                "statistics.interval.ms": 10,
                "stats_cb": self._counted,
            }
        )
        self._group = ck.Consumer({"bootstrap.servers": address, "group.id": GROUP})
        self._producer.init_transactions(60)

    def _logged(self, record: logging.LogRecord) -> bool:
        if "Disconnected" in record.getMessage():
            self._cut, self._quiet = True, 0
        return False

    def _counted(self, statistics: str) -> None:
        waits = any(broker["waitresp_cnt"] for broker in json.loads(statistics)["brokers"].values())
        self._quiet = 0 if waits else self._quiet + 1

    def notice_cut(self) -> None:
        """It logs the cut first, and gives back what waited for an answer a moment later."""
        deadline = time.monotonic() + 60
        while not self._cut or self._quiet < 2:
            assert time.monotonic() < deadline
            self._producer.poll(0.01)

    def _step(self, what: Callable[[], object]) -> None:
        try:
            what()
        except ck.KafkaException as error:
            raise StepFailed(str(error)) from error

    def begin(self) -> None:
        self._step(self._producer.begin_transaction)

    def send(self, value: str) -> None:
        self._producer.produce(self._topic, value)
        self._producer.poll(0)

    def flush(self) -> None:
        self._producer.flush(60)

    def offsets(self, offset: int) -> None:
        offsets = [ck.TopicPartition(self._topic, 0, offset)]
        metadata = self._group.consumer_group_metadata()
        self._step(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, 60))

    def commit(self) -> None:
        self._step(lambda: self._producer.commit_transaction(60))

    def abort(self) -> None:
        self._step(lambda: self._producer.abort_transaction(60))

    def close(self) -> None:
        self._group.close()


class OttlaDriver:
    """ottla_client's producer: its transactions are of version 2 where the broker has finalized that."""

    def __init__(self, address: str, topic: str = TOPIC) -> None:
        self._topic = topic
        self._producer = Producer(
            address, transactional_id=f"late-{topic}", retry_backoff_ms=10, reconnect_backoff_ms=10
        )
        self._producer.start()

    def _step(self, what: Callable[[], object]) -> None:
        try:
            what()
        except ClientError as error:
            raise StepFailed(str(error)) from error

    def begin(self) -> None:
        self._step(self._producer.begin_transaction)

    def send(self, value: str) -> None:
        self._producer.send(self._topic, value.encode(), partition=0)
        # Hands it to the loop, which sends it.
        self._producer.partitions_for(self._topic)

    def flush(self) -> None:
        self._step(self._producer.flush)

    def offsets(self, offset: int) -> None:
        offsets = {TopicPartition(self._topic, 0): OffsetAndMetadata(offset)}
        self._step(lambda: self._producer.send_offsets_to_transaction(offsets, GROUP))

    def commit(self) -> None:
        self._step(self._producer.commit_transaction)

    def abort(self) -> None:
        self._step(self._producer.abort_transaction)

    def notice_cut(self) -> None:
        """It needs no time for that."""

    def close(self) -> None:
        self._producer.close()


def read_committed(address: str, topic: str = TOPIC) -> list[str]:
    """The committed values of a topic, once no transaction is open."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    values: list[str] = []
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == ck.KafkaError._PARTITION_EOF, error
                return values
            values.append((message.value() or b"").decode())
        raise AssertionError("the end of the partition was not reached")
    finally:
        consumer.close()


def committed_offset(address: str, topic: str = TOPIC) -> int:
    """The offset that GROUP has committed."""
    consumer = ck.Consumer({"bootstrap.servers": address, "group.id": GROUP})
    try:
        [position] = consumer.committed([ck.TopicPartition(topic, 0)], 60)
        return int(position.offset)
    finally:
        consumer.close()


def late_commit(producer: Driver, network: Network) -> None:
    """The commit of one transaction comes in the middle of the next, which is aborted. Right: a, c."""
    producer.begin()
    producer.send("a")
    producer.flush()
    late = network.hold(END_TXN)
    producer.commit()
    producer.begin()
    producer.send("b")
    producer.flush()
    late.deliver()
    producer.abort()
    producer.begin()
    producer.send("c")
    producer.commit()


def late_abort(producer: Driver, network: Network) -> None:
    """The abort of one transaction comes in the middle of the next, which is committed. Right: b, c."""
    producer.begin()
    producer.send("a")
    producer.flush()
    late = network.hold(END_TXN)
    producer.abort()
    producer.begin()
    producer.send("b")
    producer.flush()
    late.deliver()
    producer.send("c")
    producer.commit()


def late_records(producer: Driver, network: Network) -> None:
    """A record of an aborted transaction comes in the middle of the next. Right: b."""
    producer.begin()
    late = network.hold(PRODUCE)
    producer.send("a")
    late.wait()
    producer.notice_cut()
    producer.abort()
    producer.begin()
    slow = network.hold(PRODUCE, cut=False)
    producer.send("b")
    slow.wait()
    late.deliver()
    slow.release()
    producer.commit()


def late_offsets(producer: Driver, network: Network) -> None:
    """A commit of offsets comes after the next transaction's, and before its end. Right: 2."""
    producer.begin()
    late = network.hold(TXN_OFFSET_COMMIT)
    producer.offsets(1)
    producer.commit()
    producer.begin()
    producer.offsets(2)
    late.deliver()
    producer.commit()


def make_topic(broker: object, topic: str = TOPIC) -> None:
    create_topic(broker, topic, 1)  # type: ignore[arg-type]
