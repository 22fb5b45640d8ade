"""Transactional producers of several clients, driven step by step."""

from __future__ import annotations

import itertools
import json
import logging
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import confluent_kafka as ck

from ottla_client import ClientError, OffsetAndMetadata, TopicPartition
from ottla_client.sync import Producer

_DEADLINE = 60.0


class StepFailed(Exception):
    """A step of a producer failed with its client's error."""


class Driver(Protocol):
    """A transactional producer. Each step raises StepFailed when the client reports an error."""

    def init(self) -> None: ...
    def begin(self) -> None: ...
    def send(self, value: str, partition: int = 0) -> None:
        """Hand a record over, without waiting for its acknowledgement."""

    def flush(self) -> None:
        """Wait until all records of the transaction are acknowledged."""

    def offsets(self, offset: int) -> None:
        """Put an offset of the group for partition 0 into the transaction."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def notice_cut(self) -> None:
        """Wait until the client knows of a cut connection: if it aborts just before, librdkafka flushes for ever."""

    def close(self) -> None: ...


MakeDriver = Callable[[str, str, str, Mapping[str, object]], Driver]
"""Makes one of bootstrap servers, a topic, a name, and settings such as ``transaction.timeout.ms``.

The name is the transactional id and the group; the id of the client is ``client.id``.
"""

_COMMON = {"linger.ms": 0, "retry.backoff.ms": 10, "client.id": "producer"}


class ConfluentDriver:
    """confluent-kafka's producer."""

    def __init__(self, address: str, topic: str, name: str, settings: Mapping[str, object]) -> None:
        self._topic = topic
        self._cut = False
        # Reports in a row, since the cut, in which nothing waits for an answer; the first may be from before.
        self._quiet = 0
        self._failed: list[str] = []
        log = logging.Logger("librdkafka")
        log.addFilter(self._logged)
        self._producer = ck.Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": name,
                # Longer than it takes to notice a cut, so that nothing is sent again meanwhile.
                "reconnect.backoff.ms": 300,
                "retry.backoff.max.ms": 100,
                "socket.timeout.ms": 6000,
                "topic.metadata.refresh.interval.ms": 1000,
                # When all its connections are broken, librdkafka 2.16 starts again with its bootstrap servers. A record
                # or a commit of offsets that waits for a broker of before waits for ever then.
                "metadata.recovery.strategy": "none",
                "logger": log,
                "statistics.interval.ms": 10,
                "stats_cb": self._counted,
                **_COMMON,
                **settings,
            }
        )
        self._group = ck.Consumer({"bootstrap.servers": address, "group.id": name})

    def _logged(self, record: logging.LogRecord) -> bool:
        if "Disconnected" in record.getMessage():
            self._cut, self._quiet = True, 0
        return False

    def _counted(self, statistics: str) -> None:
        waits = any(broker["waitresp_cnt"] for broker in json.loads(statistics)["brokers"].values())
        self._quiet = 0 if waits else self._quiet + 1

    def notice_cut(self) -> None:
        """It logs the cut first, and gives back what waited for an answer a moment later."""
        deadline = time.monotonic() + _DEADLINE
        while not self._cut or self._quiet < 2:
            assert time.monotonic() < deadline
            self._step(lambda: self._producer.poll(0.01))

    def _step(self, what: Callable[[], object]) -> None:
        try:
            what()
        except (ck.KafkaException, SystemError) as error:
            # The error of a fenced instance is raised as soon as librdkafka reports it, even before it logs something.
            raise StepFailed(str(error.__cause__ or error)) from error

    def init(self) -> None:
        self._step(lambda: self._producer.init_transactions(_DEADLINE))

    def begin(self) -> None:
        self._failed.clear()
        self._step(self._producer.begin_transaction)

    def send(self, value: str, partition: int = 0) -> None:
        def delivered(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is not None:
                self._failed.append(str(error))

        self._step(
            lambda: self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
        )
        self._step(lambda: self._producer.poll(0))

    def flush(self) -> None:
        self._step(lambda: self._producer.flush(_DEADLINE))
        left = len(self._producer)
        if left or self._failed:
            raise StepFailed(self._failed[0] if self._failed else f"{left} records are not acknowledged")

    def offsets(self, offset: int) -> None:
        offsets = [ck.TopicPartition(self._topic, 0, offset)]
        metadata = self._group.consumer_group_metadata()
        self._step(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, _DEADLINE))

    def commit(self) -> None:
        self._step(lambda: self._producer.commit_transaction(_DEADLINE))

    def abort(self) -> None:
        self._step(lambda: self._producer.abort_transaction(_DEADLINE))

    def close(self) -> None:
        self._group.close()


class OttlaDriver:
    """ottla_client's producer: its transactions are of version 2 where the broker has finalized that."""

    def __init__(self, address: str, topic: str, name: str, settings: Mapping[str, object]) -> None:
        self._topic, self._name = topic, name
        given: dict[str, Any] = {
            key.replace(".", "_"): value for key, value in {**_COMMON, **settings}.items()
        }
        self._producer = Producer(
            address,
            transactional_id=name,
            reconnect_backoff_ms=10,
            request_timeout_ms=6000,
            metadata_max_age_ms=1000,
            **given,
        )

    def _step(self, what: Callable[[], object]) -> None:
        try:
            what()
        except ClientError as error:
            raise StepFailed(str(error)) from error

    def init(self) -> None:
        self._step(self._producer.start)

    def begin(self) -> None:
        self._step(self._producer.begin_transaction)

    def send(self, value: str, partition: int = 0) -> None:
        self._step(lambda: self._producer.send(self._topic, value.encode(), partition=partition))
        # Hands it to the loop, which sends it.
        self._producer.partitions_for(self._topic)

    def flush(self) -> None:
        self._step(self._producer.flush)

    def offsets(self, offset: int) -> None:
        offsets = {TopicPartition(self._topic, 0): OffsetAndMetadata(offset)}
        self._step(lambda: self._producer.send_offsets_to_transaction(offsets, self._name))

    def commit(self) -> None:
        self._step(self._producer.commit_transaction)

    def abort(self) -> None:
        self._step(self._producer.abort_transaction)

    def notice_cut(self) -> None:
        """It needs no time for that."""

    def close(self) -> None:
        self._producer.close()


class JavaProducers:
    """Java's producers, all in one process: programs/TransactionalProducer.java, run by ``command``."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._made = itertools.count()

    def make(self, address: str, topic: str, name: str, settings: Mapping[str, object]) -> JavaDriver:
        """See MakeDriver."""
        number = next(self._made)
        given = [f"{key}={value}" for key, value in {"client.id": "producer", **settings}.items()]
        self.step(f"{number} new {address} {name} {topic} {' '.join(given)}")
        return JavaDriver(self, number, name)

    def step(self, step: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(step + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if answer != "ok":
            raise StepFailed(f"{step}: {answer}")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class JavaDriver:
    """One of :class:`JavaProducers`."""

    def __init__(self, producers: JavaProducers, number: int, group: str) -> None:
        self._producers, self._number, self._group = producers, number, group

    def _step(self, step: str) -> None:
        self._producers.step(f"{self._number} {step}")

    def init(self) -> None:
        self._step("init")

    def begin(self) -> None:
        self._step("begin")

    def send(self, value: str, partition: int = 0) -> None:
        self._step(f"send {partition} {value}")

    def flush(self) -> None:
        self._step("flush")

    def offsets(self, offset: int) -> None:
        self._step(f"offsets {self._group} {offset}")

    def commit(self) -> None:
        self._step("commit")

    def abort(self) -> None:
        self._step("abort")

    def notice_cut(self) -> None:
        """Java's producer aborts in either order."""

    def close(self) -> None:
        self._step("close")
