"""A transaction coordinator with a clock that tests move, a log in memory, and brokers that take markers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from tests.coordinator.harness import FakePartition
from tests.support.clock import FakeClock

from ottla_broker.coordinator.transaction.coordinator import (
    Listed,
    ProducerResult,
    TransactionCoordinator,
)
from ottla_broker.coordinator.transaction.metadata import Producer, TopicPartition, TransactionMetadata
from ottla_broker.coordinator.transaction.records import (
    read_key,
    read_value,
    transaction_key,
    transaction_value,
)
from ottla_broker.coordinator.transaction.settings import TransactionSettings
from ottla_broker.coordinator.transaction.states import TransactionState
from ottla_broker.metadata.internal_topics import TRANSACTION_TOPIC
from ottla_broker.replica.txn_markers import MarkerErrors, TxnMarker
from ottla_protocol.errors import ErrorCode
from ottla_protocol.records.record import encode_batch

Answer = Callable[[list[MarkerErrors] | None], None]


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int


class Waiting:
    """A request to a broker that has not been answered."""

    def __init__(self, broker_id: int, markers: Sequence[TxnMarker], reply: Answer) -> None:
        self.broker_id, self.markers, self.reply = broker_id, markers, reply


class Brokers:
    """Leaders of data partitions. ``hold`` keeps requests until :meth:`deliver` or :meth:`drop`.

    Attributes:
        leaders: who leads each partition; a partition that isn't there doesn't exist.
        markers: what each partition has.
        errors: what a partition answers instead of writing.
    """

    def __init__(self) -> None:
        self.hold = False
        self.leaders: dict[TopicPartition, int] = {("t", index): 1 + index % 2 for index in range(6)}
        self.markers: dict[TopicPartition, list[Marker]] = defaultdict(list)
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.waiting: list[Waiting] = []

    def leader_of(self, topic: str, index: int) -> int | None:
        return self.leaders.get((topic, index))

    def __call__(self, broker_id: int, markers: Sequence[TxnMarker], written: Answer) -> None:
        waiting = Waiting(broker_id, markers, written)
        if self.hold:
            self.waiting.append(waiting)
        else:
            written(self._write(waiting))

    def deliver(self, number: int = 0, *, answer: bool = True) -> None:
        """Let a request through; without ``answer`` its response gets lost."""
        waiting = self.waiting.pop(number)
        errors = self._write(waiting)
        waiting.reply(errors if answer else None)

    def drop(self, number: int = 0) -> None:
        """Lose a request."""
        self.waiting.pop(number).reply(None)

    def _write(self, waiting: Waiting) -> list[MarkerErrors]:
        return [
            {
                partition: self._write_one(
                    waiting.broker_id,
                    partition,
                    Marker(each.producer_id, each.producer_epoch, each.commit, each.coordinator_epoch),
                )
                for partition in each.partitions
            }
            for each in waiting.markers
        ]

    def _write_one(self, broker_id: int, partition: TopicPartition, marker: Marker) -> ErrorCode:
        leader = self.leaders.get(partition)
        if leader is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if leader != broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition in self.errors:
            return self.errors[partition]
        written = self.markers[partition]
        mine = [each for each in written if each.producer_id == marker.producer_id]
        if any(each.coordinator_epoch > marker.coordinator_epoch for each in mine):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if any(each.producer_epoch > marker.producer_epoch for each in mine):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        written.append(marker)
        return ErrorCode.NONE


class TransactionWorld:
    """A coordinator on one partition of the transaction topic. ``draws`` holds producer ids back."""

    def __init__(
        self,
        partition: FakePartition | None = None,
        brokers: Brokers | None = None,
        clock: FakeClock | None = None,
        first_producer_id: int = 1000,
        load: bool = True,
        **settings: int,
    ) -> None:
        self.clock = FakeClock() if clock is None else clock
        self.partition = FakePartition(0, TRANSACTION_TOPIC) if partition is None else partition
        self.partition.clock = self.clock
        self.brokers = Brokers() if brokers is None else brokers
        self.next_producer_id = first_producer_id
        self.hold_draws = False
        self.draws: list[Callable[[int, int], None]] = []
        self.settings = TransactionSettings(**settings)
        self.coordinator = TransactionCoordinator(
            self.settings, self.clock, lambda: 1, self._draw, self.brokers.leader_of, self.brokers
        )
        self.coordinator.start()
        self.coordinator.on_leader(self.partition)
        if load:
            self.clock.run_due()

    def listed(
        self, states: Sequence[str], producer_ids: Collection[int], duration_ms: int
    ) -> tuple[int, list[str], list[Listed]]:
        """The error code, the names that are no state, and the ids that are listed."""
        error, unknown, found = self.coordinator.list(states, producer_ids, duration_ms)
        return error, unknown, [each for each in found if each is not None]

    def _draw(self, drawn: Callable[[int, int], None]) -> None:
        if self.hold_draws:
            self.draws.append(drawn)
        else:
            self.give_id(drawn)

    def give_id(self, drawn: Callable[[int, int], None]) -> None:
        self.next_producer_id += 1
        drawn(0, self.next_producer_id - 1)

    def init(
        self, name: str = "x", expected: Producer | None = None, timeout_ms: int = 60_000
    ) -> list[ProducerResult]:
        """The answer, once it is there."""
        answers: list[ProducerResult] = []
        self.coordinator.init_producer_id(name, timeout_ms, expected, answers.append)
        return answers

    def producer(self, name: str = "x", expected: Producer | None = None) -> Producer:
        [result] = self.init(name, expected)
        assert result.error == 0, ErrorCode(result.error)
        return Producer(result.producer_id, result.producer_epoch)

    def add(
        self,
        producer: Producer,
        partitions: Iterable[int] = (0,),
        name: str = "x",
        client_version: int = 0,
    ) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.coordinator.add_partitions(
            name,
            producer,
            {("t", index) for index in partitions},
            lambda code: answers.append(ErrorCode(code)),
            client_version=client_version,
        )
        return answers

    def add_for_leader(self, producer: Producer, index: int = 0, name: str = "x") -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.coordinator.add_for_leader(
            name, producer, {("t", index)}, lambda code: answers.append(ErrorCode(code))
        )
        return answers

    def end_with_bump(self, producer: Producer, commit: bool = True, name: str = "x") -> list[ProducerResult]:
        answers: list[ProducerResult] = []
        self.coordinator.end_with_bump(name, producer, commit, answers.append)
        return answers

    def end(self, producer: Producer, commit: bool = True, name: str = "x") -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.coordinator.end(name, producer, commit, lambda code: answers.append(ErrorCode(code)))
        return answers

    def state(self, name: str = "x") -> str:
        found = self.coordinator.describe(name)
        return ErrorCode(found.error).name if found.metadata is None else found.metadata.state.value

    def metadata(self, name: str = "x") -> TransactionMetadata:
        found = self.coordinator.describe(name).metadata
        assert found is not None
        return found

    def markers(self, partition: int = 0) -> list[Marker]:
        return self.brokers.markers["t", partition]

    def logged(self) -> list[tuple[str, TransactionMetadata | None]]:
        """The log's records; None: a tombstone."""
        return [
            (read_key(record.key), None if record.value is None else read_value(record.value))
            for record in self.partition.records()
        ]

    def restart(self, lose: Collection[int] = (), load: bool = True, **settings: int) -> TransactionWorld:
        """Another broker takes over with the same log, but without the batches numbered in ``lose``."""
        partition = FakePartition(0, TRANSACTION_TOPIC)
        kept = [batch for number, batch in enumerate(self.partition.batches) if number not in lose]
        partition.batches, partition.end_offset = kept, self.partition.end_offset
        partition.leader_epoch = self.partition.leader_epoch + 1
        world = TransactionWorld(
            partition, self.brokers, self.clock, self.next_producer_id + 1000, load=False, **settings
        )
        if load:
            world.clock.run_due()
        return world


S = TransactionState


def world_in(
    state: TransactionState,
    epoch: int = 3,
    producer_id: int = 7,
    update_ms: int = 0,
    client_version: int = 0,
    next_producer_id: int = -1,
) -> TransactionWorld:
    """A coordinator that has loaded the id ``x`` in a state; no markers get through."""
    started = state not in (S.EMPTY,)
    partitions = frozenset({("t", 0)}) if state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else ()
    metadata = TransactionMetadata(
        producer_id,
        epoch,
        timeout_ms=60_000,
        state=state,
        partitions=frozenset(partitions),
        start_ms=1_700_000_000_000 if started else -1,
        update_ms=update_ms or 1_700_000_000_000,
        client_version=client_version,
        next_producer_id=next_producer_id,
    )
    partition = FakePartition(0, TRANSACTION_TOPIC)
    row = (0, transaction_key("x"), transaction_value(metadata), ())
    partition.append_internal(encode_batch([row]), 0)
    world = TransactionWorld(partition, load=False)
    world.brokers.hold = True
    world.clock.run_due()
    return world


LOGGED = [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
