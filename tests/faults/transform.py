"""A program that reads a topic, and writes what it has read to another one, exactly once. A process of its own.

``python transform.py CLIENT NAME BOOTSTRAP SOURCE TARGET PARTITIONS GROUP SEED``, where CLIENT is ``confluent`` or
``ottla``, and NAME is also the transactional id. It can be killed at any time, and another one with its name goes on.
It prints a line for each transaction that has ended, and exits with 1 for errors after which an application would
create new clients.

Each transaction writes a record for each record read, see :class:`tests.faults.exactly_once.Output`. Some are aborted
on purpose, and their records say so.
"""

from __future__ import annotations

import os
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

MOST_RECORDS = 60
TRANSACTION_TIMEOUT_MS = 15_000
SESSION_MS = 6_000
_ABORTS = 0.15
_CALL_SECONDS = 60.0

Place = tuple[int, int]
"""A partition and an offset of the source."""


class Names(NamedTuple):
    """What the command line names."""

    name: str
    bootstrap: str
    source: str
    target: str
    partitions: int
    group: str


class Aborted(Exception):
    """The transaction is aborted, and the consumer stands where the group stands: go on."""


class Transformer(ABC):
    @abstractmethod
    def read(self) -> list[Place]:
        """What comes next; empty after a moment without any."""

    @abstractmethod
    def write(self, values: Sequence[bytes], *, commit: bool) -> None:
        """Write these, and the consumer's offsets, in one transaction. Raises Aborted if it was aborted."""


class ConfluentTransformer(Transformer):
    def __init__(self, names: Names) -> None:
        import confluent_kafka as ck

        self._ck = ck
        self._names = names
        eager = {
            "bootstrap.servers": names.bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 200,
            "socket.timeout.ms": 5_000,
            "topic.metadata.refresh.interval.ms": 5_000,
            "log_level": 0,
        }
        self._producer = ck.Producer(
            {
                **eager,
                "transactional.id": names.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
            }
        )
        self._producer.init_transactions(_CALL_SECONDS)
        self._consumer = ck.Consumer(
            {
                **eager,
                "group.id": names.group,
                "session.timeout.ms": SESSION_MS,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        self._moved = False
        self._next: dict[int, int] = {}
        self._consumer.subscribe(
            [names.source], on_assign=self._move, on_revoke=self._move, on_lost=self._move
        )

    def _move(self, *_: object) -> None:
        self._moved = True

    def read(self) -> list[Place]:
        messages = self._consumer.consume(MOST_RECORDS, 0.2)
        if self._moved:
            # What was read before a rebalance may be another member's now.
            self._moved = False
            self._rewind()
            return []
        places = []
        self._next = {}
        for message in messages:
            if message.error() is None:
                places.append((message.partition() or 0, message.offset() or 0))
                self._next[places[-1][0]] = places[-1][1] + 1
        return places

    def _rewind(self) -> None:
        assigned = self._consumer.assignment()
        if assigned:
            for place in self._consumer.committed(assigned, _CALL_SECONDS):
                if place.error is not None:
                    raise self._ck.KafkaException(place.error)
                place.offset = max(place.offset, 0)
                self._consumer.seek(place)

    def write(self, values: Sequence[bytes], *, commit: bool) -> None:
        producer = self._producer
        try:
            producer.begin_transaction()
            for number, value in enumerate(values):
                producer.produce(self._names.target, value, partition=number % self._names.partitions)
            offsets = [self._ck.TopicPartition(self._names.source, p, o) for p, o in self._next.items()]
            metadata = self._consumer.consumer_group_metadata()
            self._again(lambda: producer.send_offsets_to_transaction(offsets, metadata, _CALL_SECONDS))
            if commit:
                self._again(lambda: producer.commit_transaction(_CALL_SECONDS))
                return
            producer.flush(1)
        except self._ck.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        self._again(lambda: producer.abort_transaction(_CALL_SECONDS))
        self._rewind()
        raise Aborted

    def _again(self, call: object) -> None:
        """As librdkafka's documentation asks: call it again for an error that is retriable."""
        deadline = time.monotonic() + _CALL_SECONDS
        while True:
            try:
                call()  # type: ignore[operator]
                return
            except self._ck.KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise


class OttlaTransformer(Transformer):
    def __init__(self, names: Names) -> None:
        from ottla_client.sync import Consumer, Producer

        self._names = names
        self._producer = Producer(
            names.bootstrap,
            transactional_id=names.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=5_000,
            delivery_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=2,
            retry_backoff_ms=50,
            retry_backoff_max_ms=200,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            metadata_max_age_ms=5_000,
        )
        self._producer.start()
        self._consumer = Consumer(
            names.source,
            bootstrap_servers=names.bootstrap,
            group_id=names.group,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1_000,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            request_timeout_ms=SESSION_MS + 5_000,
            retry_backoff_ms=50,
            retry_backoff_max_ms=200,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            metadata_max_age_ms=5_000,
        )
        self._consumer.start()

    def read(self) -> list[Place]:
        records = self._consumer.poll(timeout_ms=200, max_records=MOST_RECORDS)
        return [(record.partition, record.offset) for record in records]

    def write(self, values: Sequence[bytes], *, commit: bool) -> None:
        from ottla_client.errors import CommitFailedError, TransactionAbortedError

        class OnPurpose(Exception):
            pass

        try:
            with self._producer.transaction() as transaction:
                for number, value in enumerate(values):
                    self._producer.send(self._names.target, value, partition=number % self._names.partitions)
                transaction.send_offsets(self._consumer)
                if not commit:
                    raise OnPurpose
        except (OnPurpose, CommitFailedError, TransactionAbortedError):
            self._consumer.seek_to_committed()
            raise Aborted from None


def main(arguments: Sequence[str]) -> None:
    kinds = {"confluent": ConfluentTransformer, "ottla": OttlaTransformer}
    kind, name, bootstrap, source, target, partitions, group, seed = arguments
    chance = random.Random(int(seed))
    transformer: Transformer = kinds[kind](Names(name, bootstrap, source, target, int(partitions), group))
    number = 0
    while True:
        places = transformer.read()
        if not places:
            continue
        number += 1
        commit = chance.random() >= _ABORTS
        outcome = "commit" if commit else "abort"
        values = [
            f"{name}-{os.getpid()}-{number}/{len(places)}/{index}/{outcome}/{partition}/{offset}".encode()
            for index, (partition, offset) in enumerate(places)
        ]
        try:
            transformer.write(values, commit=commit)
        except Aborted:
            outcome = "aborted"
        print(outcome, len(places), flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        # As a crash: nothing is closed.
        os._exit(1)
