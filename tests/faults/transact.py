"""Random transactions of confluent-kafka's producers, and of instances that take an id over. A process of its own.

``python transact.py BOOTSTRAP TOPIC PARTITIONS SEED ALONE SHARED`` works with ALONE ids of one producer each, and with
SHARED ids that one instance takes over from the other again and again, until its standard input ends. The last
instance goes on with what it was doing then: there is no open transaction.

A record's value is as :class:`tests.faults.exactly_once.Output` says; its partition is 0, and its offset the
number of the transaction. Half of the transactions commit this number for the group with the name of the id. Standard
output has a line for each event, with spaces between the words::

    txn ID TRANSACTION SIZE OFFSET OUTCOME    a transaction is over; OFFSET is -1 if it had none
    error ID TRANSACTION ERROR                a step of a producer that has not been replaced has failed
    back ID COMMITTED FETCHED                 the group's offset has gone back
    zombie ID STEP                            a step of a fenced instance has succeeded

An OUTCOME is ``commit`` or ``abort``, as the client says, or ``unknown``. It is unknown, too, where
``send_offsets_to_transaction`` doesn't return: librdkafka ignores its timeout if the group's coordinator has left the
cluster for a moment (librdkafka's issues 5456 and 5511); the error is ``HANGS`` then. ERROR is ``EXPIRED`` where a
transaction was open for longer than its timeout, so that the coordinator may have aborted it.
``interop/programs/Transactions.java`` does the same. Java's ``commitTransaction`` may end a transaction without its
last record, which was never sent; the error is ``UNSENT`` then, and SIZE that of the records that were.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck

TIMEOUT_MS = 60_000
_CALL_SECONDS = 20.0
_PATIENCE = 90.0
_END_SECONDS = 2 * _PATIENCE + 3 * _CALL_SECONDS
"""A step that times out is tried for 90 s, and so is the abort after it."""
_ABORTS = 0.15
_OFFSETS = 0.5
_FLUSHES = 0.3
_LOOKS = 0.15
_TAKEOVERS = 0.1
_MOST_RECORDS = 4

_EAGER: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 5_000,
    "topic.metadata.refresh.interval.ms": 2_000,
    # When all its connections are broken, librdkafka 2.16 starts again with its bootstrap servers. A record
    # or a commit of offsets that waits for a broker of before waits for ever then.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}

_lock = threading.Lock()
_stopping = threading.Event()


def say(*words: object) -> None:
    line = " ".join(map(str, words)) + "\n"
    with _lock:
        sys.stdout.write(line)
        sys.stdout.flush()


class Failed(Exception):
    """A step has failed. ``abort``: the transaction can be aborted; otherwise the producer has to be replaced."""

    def __init__(self, name: str, *, abort: bool) -> None:
        super().__init__(name)
        self.name, self.abort = name, abort


class Instance:
    """One producer with an id."""

    def __init__(self, bootstrap: str, name: str, number: int) -> None:
        self.name, self.number = name, number
        self.transaction = ""
        self._began = 0.0
        self._failed: list[ck.KafkaError] = []
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"tx-{name}",
                "transactional.id": name,
                "transaction.timeout.ms": TIMEOUT_MS,
                "message.timeout.ms": TIMEOUT_MS,
                "linger.ms": 0,
                **_EAGER,
            }
        )
        self._step(lambda: self._producer.init_transactions(_CALL_SECONDS))

    def _step(self, call: Callable[[], object]) -> None:
        """As librdkafka's documentation asks: call it again for an error that is retriable."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                call()
                return
            except ck.KafkaException as error:
                found = error.args[0]
                if not found.retriable() or time.monotonic() > deadline:
                    raise Failed(found.name(), abort=found.txn_requires_abort()) from error

    def begin(self, transaction: str) -> None:
        self.transaction = transaction
        self._began = time.monotonic()
        self._failed.clear()
        self._step(self._producer.begin_transaction)

    def why(self, failed: Failed) -> str:
        """The error to report for a step that has failed."""
        return "EXPIRED" if time.monotonic() - self._began >= TIMEOUT_MS / 1000 else failed.name

    def send(self, topic: str, partition: int, value: str) -> None:
        def delivered(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is not None:
                self._failed.append(error)

        self._step(lambda: self._producer.produce(topic, value, partition=partition, on_delivery=delivered))

    def flush(self) -> None:
        self._step(lambda: self._producer.flush(_CALL_SECONDS))
        if self._failed:
            raise Failed(self._failed[0].name(), abort=not self._failed[0].fatal())

    def offsets(self, topic: str, offset: int, group: ck.Consumer) -> None:
        offsets = [ck.TopicPartition(topic, 0, offset)]
        metadata = group.consumer_group_metadata()
        self._step(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, _CALL_SECONDS))

    def commit(self) -> None:
        self._step(lambda: self._producer.commit_transaction(_CALL_SECONDS))

    def abort(self) -> None:
        self._step(lambda: self._producer.abort_transaction(_CALL_SECONDS))


class Worker(threading.Thread):
    """An id, and its instances one after the other."""

    def __init__(self, arguments: tuple[str, str, int], name: str, seed: int, *, shared: bool) -> None:
        super().__init__(name=name)
        self._servers, self._topic, self._partitions = arguments
        self._chance = random.Random(seed)
        self._shared = shared
        self._transactions = self._instances = 0
        self._committed = -1
        """The last offset that is surely committed."""
        self.open: tuple[str, int, int] | None = None
        """The transaction, its size and the offset that it commits, while a step of it goes on."""
        self._group = ck.Consumer({"bootstrap.servers": self._servers, "group.id": name, **_EAGER})

    def run(self) -> None:
        instance = self._replace()
        while not _stopping.is_set() or instance is None:
            if instance is None:
                instance = self._replace()
            elif self._shared and self._chance.random() < _TAKEOVERS:
                instance = self._take_over(instance)
            elif not self._transact(instance):
                instance = None
        self._group.close()

    def _replace(self) -> Instance | None:
        self._instances += 1
        try:
            return Instance(self._servers, self.name, self._instances)
        except Failed as failed:
            say("error", self.name, "init", failed.name)
            return None

    def _write(
        self, instance: Instance, size: int, *, commit: bool, amid: Callable[[], None] | None = None
    ) -> None:
        """Begin a transaction and write its records; ``amid`` happens after the first."""
        self._transactions += 1
        transaction = f"{self.name}.{instance.number}.{self._transactions}"
        instance.begin(transaction)
        outcome = "commit" if commit else "abort"
        for index in range(size):
            partition = self._chance.randrange(self._partitions)
            value = f"{transaction}/{size}/{index}/{outcome}/0/{self._transactions}"
            instance.send(self._topic, partition, value)
            if self._chance.random() < _FLUSHES or amid is not None:
                instance.flush()
            if amid is not None:
                amid()
                amid = None

    def _transact(self, instance: Instance, amid: Callable[[], None] | None = None) -> bool:
        """One transaction; returns False if the producer has to be replaced."""
        commit = self._chance.random() >= _ABORTS
        with_offset = self._chance.random() < _OFFSETS
        size = self._chance.randint(1, _MOST_RECORDS)
        offset = self._transactions + 1 if with_offset else -1
        self.open = (f"{self.name}.{instance.number}.{self._transactions + 1}", size, offset)
        outcome, ending, goes_on = "abort", False, True
        try:
            self._write(instance, size, commit=commit, amid=amid)
            if with_offset:
                instance.offsets(self._topic, self._transactions, self._group)
            if commit:
                ending = True
                instance.commit()
                outcome = "commit"
            else:
                instance.abort()
        except Failed as failed:
            say("error", self.name, instance.transaction, instance.why(failed))
            goes_on = failed.abort and self._abort(instance)
            if ending and not goes_on:
                outcome = "unknown"
        self.open = None
        say("txn", self.name, instance.transaction, size, offset, outcome)
        if outcome == "commit" and with_offset:
            self._committed = offset
            if self._chance.random() < _LOOKS:
                self._look()
        return goes_on

    def _abort(self, instance: Instance) -> bool:
        try:
            instance.abort()
            return True
        except Failed as failed:
            say("error", self.name, instance.transaction, instance.why(failed))
            return False

    def _look(self) -> None:
        """The group has the offset. A coordinator that was replaced may not know it, for some seconds."""
        fetched = None
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            try:
                [place] = self._group.committed([ck.TopicPartition(self._topic, 0)], 10)
            except ck.KafkaException:
                continue
            if place.error is not None:
                continue
            fetched = place.offset
            if fetched >= self._committed:
                return
            time.sleep(0.2)
        if fetched is not None:
            say("back", self.name, self._committed, fetched)

    def _take_over(self, old: Instance) -> Instance | None:
        """A new instance fences the old one, which goes on amid one of the new one's transactions."""
        try:
            self._write(old, 1, commit=False)
        except Failed as failed:
            say("error", self.name, old.transaction, old.why(failed))
        say("txn", self.name, old.transaction, 1, -1, "abort")
        new = self._replace()
        goes_on = new is not None
        for number in range(self._chance.randint(1, 3)):
            if new is not None and goes_on:
                goes_on = self._transact(new, (lambda: self._act_as_zombie(old)) if number == 0 else None)
        return new if goes_on else None

    def _act_as_zombie(self, old: Instance) -> None:
        step = self._chance.choice(("write", "commit", "offsets"))
        try:
            if step == "write":
                old.send(
                    self._topic, self._chance.randrange(self._partitions), f"{old.transaction}/1/9/abort/0/0"
                )
                old.flush()
            elif step == "offsets":
                old.offsets(self._topic, 0, self._group)
            else:
                old.commit()
        except Failed:
            return
        say("zombie", self.name, step)


def main(arguments: list[str]) -> None:
    bootstrap, topic, partitions, seed, alone, shared = arguments
    common = (bootstrap, topic, int(partitions))
    chance = random.Random(int(seed))
    kinds = [("c", False)] * int(alone) + [("s", True)] * int(shared)
    workers = [
        Worker(common, f"{kind}{number}", chance.randrange(10**9), shared=is_shared)
        for number, (kind, is_shared) in enumerate(kinds)
    ]
    for worker in workers:
        worker.start()
    sys.stdin.read()
    _stopping.set()
    end = time.monotonic() + _END_SECONDS
    for worker in workers:
        worker.join(max(end - time.monotonic(), 0))
        if worker.is_alive() and (hanging := worker.open) is not None:
            transaction, size, offset = hanging
            say("error", worker.name, transaction, "HANGS")
            say("txn", worker.name, transaction, size, offset, "unknown")


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    # Without waiting for fenced producers, which close for a minute.
    os._exit(0)
