"""Members of consumer groups in a thread, or in a process that can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import subprocess
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self

import aiokafka
import confluent_kafka as ck
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from tests.clients.kits import Got, confluent_got, record_got
from tests.support.waiting import wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python loads schemas as Python 3.11 would not
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, tuple[int, str]]
"""What is committed: offset and metadata."""


class Member(ABC):
    """A consumer in a group, used only by its own polling thread."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        instance_id: str | None = None,
        session_ms: int = 10_000,
        auto_commit_ms: int | None = None,
        poll_ms: int = 500,
        **extra: Any,
    ) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.topics = list(topics)
        self.pattern = pattern
        self.instance_id = instance_id
        self.session_ms = session_ms
        self.auto_commit_ms = auto_commit_ms
        self.poll_ms = poll_ms
        self.extra = extra
        self._records: list[tuple[str, Got]] = []
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []
        self.error: BaseException | None = None
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._commands: queue.SimpleQueue[tuple[Callable[[Any], Any], Future[Any]]] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=f"member of {group}", daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.error = error

    @abstractmethod
    def _run(self) -> None:
        """Poll until the leave command, running other commands between polls."""

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        self._check()
        return self._assigned

    @property
    def records(self) -> list[tuple[str, Got]]:
        """The records received so far, each with its topic."""
        self._check()
        return self._records

    def _check(self) -> None:
        if self.error is not None:
            raise AssertionError(f"a member of {self.group} has failed: {self.error!r}") from self.error

    def call(self, run: Callable[[Any], Any], timeout: float = 60.0) -> Any:
        """Run ``run(consumer)`` in the consumer's thread; returns or raises what it does."""
        future: Future[Any] = Future()
        self._commands.put((run, future))
        deadline = time.monotonic() + timeout
        while not future.done():
            self._check()
            assert time.monotonic() < deadline, (
                f"a member of {self.group} did not answer within {timeout:g} s"
            )
            time.sleep(0.005)
        return future.result()

    @abstractmethod
    def commit(self, offsets: Offsets) -> None:
        """Commit these offsets and wait for the response."""

    @abstractmethod
    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None for none."""

    def commit_position(self) -> None:
        """Commit the polled position and wait for the response."""
        self.call(lambda consumer: consumer.commit())

    def leave(self) -> None:
        """Leave the group and close."""
        self._leaving.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"a member of {self.group} did not close within 30 s"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _sync_commands(self, consumer: Any) -> None:
        while not self._commands.empty():
            run, future = self._commands.get()
            try:
                future.set_result(run(consumer))
            except Exception as error:
                future.set_exception(error)


class ConfluentMember(Member):
    def _run(self) -> None:
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "session.timeout.ms": self.session_ms,
            "heartbeat.interval.ms": 200,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": self.auto_commit_ms is not None,
            "partition.assignment.strategy": "range",
            "topic.metadata.refresh.interval.ms": 500,
        }
        if self.auto_commit_ms is not None:
            config["auto.commit.interval.ms"] = self.auto_commit_ms
        if self.instance_id is not None:
            config["group.instance.id"] = self.instance_id
        config.update(self.extra)
        consumer_protocol = config.get("group.protocol") == "consumer"
        if consumer_protocol:
            # The broker decides about these.
            for key in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
                config.pop(key)
        strategy = config.get("partition.assignment.strategy")
        cooperative = consumer_protocol or strategy == "cooperative-sticky"
        consumer = ck.Consumer(config)

        def pairs(partitions: list[ck.TopicPartition]) -> frozenset[TopicPartition]:
            return frozenset((p.topic, p.partition) for p in partitions)

        def assigned(consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
            self.events.append(("assigned", pairs(partitions)))
            if cooperative:
                consumer.incremental_assign(partitions)
            else:
                consumer.assign(partitions)

        def gone(what: str) -> Callable[[ck.Consumer, list[ck.TopicPartition]], None]:
            def callback(consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
                self.events.append((what, pairs(partitions)))
                if cooperative:
                    consumer.incremental_unassign(partitions)
                else:
                    consumer.unassign()

            return callback

        topics = [self.pattern] if self.pattern is not None else self.topics
        consumer.subscribe(topics, on_assign=assigned, on_revoke=gone("revoked"), on_lost=gone("lost"))
        try:
            while not self._leaving.is_set():
                self._sync_commands(consumer)
                for message in consumer.consume(500, 0.05):
                    error = message.error()
                    if error is None:
                        self._records.append((message.topic(), confluent_got(message)))
                    elif error.code() != ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise ck.KafkaException(error)
                self._assigned = pairs(consumer.assignment())
        finally:
            consumer.close()

    def commit(self, offsets: Offsets) -> None:
        wanted = [ck.TopicPartition(t, p, offset, meta) for (t, p), (offset, meta) in offsets.items()]
        for one in self.call(lambda consumer: consumer.commit(offsets=wanted, asynchronous=False)):
            if one.error is not None:
                raise ck.KafkaException(one.error)

    def commit_position(self) -> None:
        self.call(lambda consumer: consumer.commit(asynchronous=False))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        wanted = [ck.TopicPartition(t, p) for t, p in partitions]
        found = self.call(lambda consumer: consumer.committed(wanted, timeout=60))
        return {(one.topic, one.partition): None if one.offset < 0 else one.offset for one in found}


class KafkaPythonMember(Member):
    def _run(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance_id,
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=200,
            auto_offset_reset="earliest",
            enable_auto_commit=self.auto_commit_ms is not None,
            auto_commit_interval_ms=self.auto_commit_ms or 5000,
            metadata_max_age_ms=500,
            **{"partition_assignment_strategy": (KafkaPythonRange,), **self.extra},
        )
        member = self

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            """Reports an assignment at once, not at the end of the poll."""

            def on_partitions_revoked(self, revoked: Any) -> None:
                member._assigned = frozenset()

            def on_partitions_assigned(self, assigned: Any) -> None:
                member._assigned = frozenset((p.topic, p.partition) for p in assigned)
                event = ("assigned", member._assigned)
                if event not in member.events[-1:]:
                    member.events.append(event)

        # kafka-python 3.0 forgets a join whose poll() runs out between the answers of JoinGroup and SyncGroup: its
        # need_rejoin() says no from the first on, so that none takes the second, and heartbeats stay off. Hence
        # the long polls.
        consumer.subscribe(self.topics, pattern=self.pattern, listener=Listener())
        try:
            while not self._leaving.is_set():
                self._sync_commands(consumer)
                try:
                    polled = consumer.poll(self.poll_ms)
                except kafka.errors.KafkaConnectionError:
                    time.sleep(0.1)  # it tells of a broker that is away, and can be polled again
                    continue
                for messages in polled.values():
                    self._records += [(message.topic, record_got(message)) for message in messages]
        finally:
            consumer.close(autocommit=self.auto_commit_ms is not None)

    def commit(self, offsets: Offsets) -> None:
        wanted = {
            kafka.TopicPartition(t, p): kafka.structs.OffsetAndMetadata(offset, meta, -1)
            for (t, p), (offset, meta) in offsets.items()
        }
        self.call(lambda consumer: consumer.commit(wanted))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        def find(consumer: Any) -> dict[TopicPartition, int | None]:
            return {
                (t, p): consumer.committed(kafka.TopicPartition(t, p), timeout_ms=10_000)
                for t, p in partitions
            }

        return self.call(find)


class AiokafkaMember(Member):
    def _run(self) -> None:
        asyncio.run(self._poll())

    async def _poll(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance_id,
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=200,
            auto_offset_reset="earliest",
            enable_auto_commit=self.auto_commit_ms is not None,
            auto_commit_interval_ms=self.auto_commit_ms or 5000,
            metadata_max_age_ms=500,
            **{"partition_assignment_strategy": (AiokafkaRange,), **self.extra},
        )
        consumer.subscribe(self.topics, pattern=self.pattern)
        await consumer.start()
        try:
            while not self._leaving.is_set():
                while not self._commands.empty():
                    run, future = self._commands.get()
                    try:
                        result = run(consumer)
                        future.set_result(await result if isinstance(result, Awaitable) else result)
                    except Exception as error:
                        future.set_exception(error)
                for messages in (await consumer.getmany(timeout_ms=50)).values():
                    self._records += [(message.topic, record_got(message)) for message in messages]
                assigned = frozenset((p.topic, p.partition) for p in consumer.assignment())
                if assigned != self._assigned:
                    self.events.append(("assigned", assigned))
                    self._assigned = assigned
        finally:
            await consumer.stop()

    def commit(self, offsets: Offsets) -> None:
        self.call(
            lambda consumer: consumer.commit(
                {aiokafka.TopicPartition(*at): value for at, value in offsets.items()}
            )
        )

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        async def find(consumer: Any) -> dict[TopicPartition, int | None]:
            return {(t, p): await consumer.committed(aiokafka.TopicPartition(t, p)) for t, p in partitions}

        return self.call(find)


MEMBERS: dict[str, type[Member]] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}


class MemberProcess:
    """A member in a process that can be killed, which the group notices by missing heartbeats."""

    def __init__(self, client: str, broker: BrokerProcess, group: str, topic: str, session_ms: int) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.clients.members",
                client,
                broker.bootstrap,
                group,
                topic,
                str(session_ms),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._assigned = frozenset((topic, partition) for topic, partition in json.loads(line))

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        assert self._process.poll() is None, "a member's process has ended by itself"
        return self._assigned

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def shared_out(members: Iterable[Any], topic: str, partitions: int, timeout: float = 60.0) -> None:
    """Wait until the topic's partitions are assigned, each to one member, and every member has at least one."""
    members = list(members)

    def check() -> bool:
        parts = [member.assigned for member in members]
        return all(parts) and sorted(p for part in parts for p in part) == [
            (topic, p) for p in range(partitions)
        ]

    try:
        wait_for(check, f"{len(members)} members to share {partitions} partitions of {topic}", timeout)
    except AssertionError as error:
        raise AssertionError(
            f"{error}; they have {[sorted(member.assigned) for member in members]}"
        ) from None


def _main() -> None:
    client, bootstrap, group, topic, session_ms = sys.argv[1:]
    member = MEMBERS[client](bootstrap, group, [topic], session_ms=int(session_ms), poll_ms=5000)
    last: frozenset[TopicPartition] | None = None
    while True:
        if member.assigned != last:
            last = member.assigned
            print(json.dumps(sorted(last)), flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    _main()
