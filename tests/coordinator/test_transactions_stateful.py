"""Random transactions over coordinators, replicas and leaders that fail, on a virtual clock.

No transaction is half completed, no epoch goes back, every decision in the log is carried out once, a client's answer
is what the log says, and every request is answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.coordinator.harness import FakePartition
from tests.coordinator.transactions import Answer, Brokers, Marker, TransactionWorld, Waiting
from tests.support.clock import FakeClock
from tests.support.depth import examples

from ottla_broker.coordinator.transaction.metadata import (
    LAST_EPOCH,
    Producer,
    TopicPartition,
    TransactionMetadata,
)
from ottla_broker.coordinator.transaction.records import (
    read_key,
    read_value,
    transaction_key,
    transaction_value,
)
from ottla_broker.coordinator.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TRANSITIONS,
    TransactionState,
)
from ottla_broker.log.heard_connections import Arrival, ConnectionAge
from ottla_broker.log.verification import VerificationGuard
from ottla_broker.metadata.internal_topics import TRANSACTION_TOPIC
from ottla_broker.replica.offset_waiters import OffsetWaiter, Reached
from ottla_broker.replica.txn_markers import TxnMarker
from ottla_protocol.errors import ErrorCode as Code
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import decode_records, encode_batch

NAMES = ["a", "b"]
TIMEOUT_MS = 40_000
DECIDED = {
    True: {PREPARE_COMMIT, COMPLETE_COMMIT},
    False: {PREPARE_ABORT, COMPLETE_ABORT},
}
NEXT: dict[TransactionState, set[TransactionState]] = {
    state: set(events.values()) for state, events in TRANSITIONS.items()
}
NEXT[ONGOING] |= {PREPARE_ABORT}

Row = tuple[str, TransactionMetadata | None]


class ReplicatedPartition(FakePartition):
    """A log whose end may not be committed yet."""

    def __init__(self, appended: Callable[[str, TransactionMetadata], None]) -> None:
        super().__init__(0, TRANSACTION_TOPIC)
        self.committed_end = 0
        self.appended = appended

    def hear(self, producer_id: int, epoch: int, connection: ConnectionAge, request: Hashable) -> Arrival:
        return Arrival.TIMELY

    def hear_from_now(self) -> None:
        pass

    def append_internal(self, records: bytearray, now_ms: int, guard: VerificationGuard | None = None) -> int:
        before = self.end_offset
        end = super().append_internal(records, now_ms)
        for name, metadata in self.rows(end)[before:]:
            assert metadata is not None
            self.appended(name, metadata)
        if not self.hold:
            self.committed_end = end
        return end

    def is_committed(self, end_offset: int) -> bool:
        return end_offset <= self.committed_end

    def when_committed(self, end_offset: int, callback: Reached) -> OffsetWaiter | None:
        return None if self.is_committed(end_offset) else self.waiters.wait(end_offset, callback)

    def commit(self) -> None:
        """The replicas have caught up."""
        self.committed_end = self.end_offset
        self.waiters.reach(self.end_offset)

    def rows(self, end: int) -> list[Row]:
        """The records below an offset."""
        return [
            (read_key(record.key), None if record.value is None else read_value(record.value))
            for batch in self.batches
            for position, header in iter_headers(batch)
            for record in decode_records(batch, position, header)
            if record.offset < end
        ]


class CheckedBrokers(Brokers):
    """Refuse markers that no decision in the log stands behind.

    A request that isn't let through in time is lost, as with the real ones: what comes later is refused (decision 9).
    """

    check: Any = None
    clock: Any = None

    def __call__(self, broker_id: int, markers: Sequence[TxnMarker], written: Answer) -> None:
        super().__call__(broker_id, markers, written)
        if self.hold:
            self.clock.call_later(35, self._give_up, self.waiting[-1])

    def _give_up(self, waiting: Waiting) -> None:
        if waiting in self.waiting:
            self.drop(self.waiting.index(waiting))

    def _write_one(self, broker_id: int, partition: TopicPartition, marker: Marker) -> Code:
        error = super()._write_one(broker_id, partition, marker)
        if error is Code.NONE:
            self.check(partition, marker)
        return error


class Transactions(RuleBasedStateMachine):
    @initialize(epoch=st.sampled_from([-1, -1, LAST_EPOCH - 3]))
    def begin(self, epoch: int) -> None:
        self.clock = FakeClock()
        self.brokers = CheckedBrokers()
        self.brokers.check = self.check_marker
        self.brokers.clock = self.clock
        self.partition = ReplicatedPartition(self.check_record)
        self.order: dict[str, list[int]] = defaultdict(list)
        self.producers: dict[str, list[Producer]] = defaultdict(list)
        self.answers: list[tuple[float, list[Any]]] = []
        self.last: dict[str, TransactionMetadata] = {}
        # The decisions that producers have asked for.
        self.wanted: set[tuple[str, int, int, bool]] = set()
        # By id: how many such markers each partition had when the transaction was decided.
        self.before: dict[str, dict[TopicPartition, int]] = {}
        if epoch >= 0:
            metadata = TransactionMetadata(
                500, epoch, timeout_ms=TIMEOUT_MS, state=COMPLETE_COMMIT, start_ms=1, update_ms=1
            )
            row = (0, transaction_key("a"), transaction_value(metadata), ())
            self.partition.append_internal(encode_batch([row]), 0)
        self.world = self.open(1000)

    def open(self, first_id: int) -> TransactionWorld:
        world = TransactionWorld(
            self.partition, self.brokers, self.clock, first_id, id_expiration_ms=600_000_000
        )
        world.hold_draws = False
        return world

    def age(self, name: str, producer: Producer) -> tuple[int, int]:
        """Orders the producers of an id."""
        ids = self.order[name]
        return (ids.index(producer.id) if producer.id in ids else -1, producer.epoch)

    def newest(self, name: str) -> Producer | None:
        return max(self.producers[name], key=lambda each: self.age(name, each), default=None)

    def wait_for(self, answer: list[Any]) -> None:
        if not answer:
            self.answers.append((self.clock.time + 31, answer))

    # Clients

    @rule(name=st.sampled_from(NAMES), again=st.integers(0, 3))
    def init(self, name: str, again: int) -> None:
        known = self.producers[name]
        expected = known[-again] if 0 < again <= len(known) else None
        newest = self.newest(name)
        answer: list[Any] = []

        def reply(result: Any) -> None:
            assert not answer
            answer.append(result)
            if result.error:
                return
            producer = Producer(result.producer_id, result.producer_epoch)
            current = self.newest(name)
            if current is not None:
                assert self.age(name, producer) >= self.age(name, current), "an epoch went back"
                assert expected is not None or producer != current, "two instances share an epoch"
            self.producers[name].append(producer)

        self.world.coordinator.init_producer_id(name, TIMEOUT_MS, expected, reply)
        self.wait_for(answer)
        if answer and answer[0].error == 0 and expected is not None and newest is not None:
            # Only the newest producer continues, or one whose answer got lost.
            assert self.age(name, expected) >= (self.age(name, newest)[0] - 1, 0)

    @rule(
        name=st.sampled_from(NAMES),
        back=st.sampled_from([0, 0, 0, 0, 1, 2]),
        indexes=st.sets(st.integers(0, 5), min_size=1, max_size=3),
        how=st.sampled_from(["plain", "held", "leader"]),
    )
    def add(self, name: str, back: int, indexes: set[int], how: str = "held") -> None:
        """``held``: the request may wait for the end of the transaction before; ``leader``: of version 2."""
        partitions = {("t", index) for index in indexes}
        add = self.world.coordinator.add_partitions

        def request(producer: Producer, reply: Any) -> None:
            def answered(code: int) -> None:
                reply(code)
                if code == 0:
                    rows = self.partition.rows(self.partition.committed_end)
                    last = [each for key, each in rows if key == name and each is not None][-1]
                    assert (last.producer_id, last.producer_epoch) == producer
                    assert last.state is ONGOING
                    assert last.partitions >= partitions

            if how == "leader":
                self.world.coordinator.add_for_leader(name, producer, partitions, answered)
                return
            again = partial(add, name, producer, partitions, answered) if how == "held" else None
            add(name, producer, partitions, answered, again)

        self.use(name, back, request)

    @rule(name=st.sampled_from(NAMES), back=st.sampled_from([0, 0, 0, 0, 1, 2]), commit=st.booleans())
    def end(self, name: str, back: int, commit: bool) -> None:
        answer = self.use(
            name,
            back,
            lambda producer, reply: self.world.coordinator.end(name, producer, commit, reply),
            commit,
        )
        assert answer is None or answer[:1] != [Code.UNKNOWN_SERVER_ERROR]

    @rule(name=st.sampled_from(NAMES), back=st.sampled_from([0, 0, 0, 0, 1, 2]), commit=st.booleans())
    def end_with_bump(self, name: str, back: int, commit: bool) -> None:
        """A client of version 2; with ``back`` it may repeat its request, whose answer got lost."""
        known = self.producers[name]
        if back >= len(known):
            return
        producer, newest = known[-1 - back], self.newest(name)
        assert newest is not None
        answer: list[Any] = []
        self.wanted.add((name, *producer, commit))

        def reply(ended: Any) -> None:
            assert not answer
            answer.append(ended)
            if ended.error:
                return
            following = Producer(ended.producer_id, ended.producer_epoch)
            assert self.age(name, following) > self.age(name, producer), "the epoch wasn't raised"
            decided = [
                metadata
                for key, metadata in self.partition.rows(self.partition.committed_end)
                if key == name and metadata is not None
            ][-1]
            assert decided.next_producer == following
            assert decided.state in DECIDED[commit]
            self.producers[name].append(following)

        self.world.coordinator.end_with_bump(name, producer, commit, reply)
        if self.age(name, producer) < self.age(name, newest):
            assert answer, "a fenced producer has to wait"
        self.wait_for(answer)

    def use(self, name: str, back: int, request: Any, commit: bool | None = None) -> list[Any] | None:
        known = self.producers[name]
        if back >= len(known):
            return None
        producer, newest = known[-1 - back], self.newest(name)
        assert newest is not None
        answer: list[Any] = []
        if commit is not None:
            self.wanted.add((name, *producer, commit))

        def reply(code: int) -> None:
            assert not answer
            answer.append(Code(code))
            if code == 0 and commit is not None:
                decided = [
                    metadata
                    for key, metadata in self.partition.rows(self.partition.committed_end)
                    if key == name and metadata is not None
                ][-1]
                assert (decided.producer_id, decided.producer_epoch) == producer
                assert decided.state in DECIDED[commit]

        request(producer, reply)
        if self.age(name, producer) < self.age(name, newest):
            assert answer, "a fenced producer has to wait"
            assert answer[0] is not Code.NONE
        self.wait_for(answer)
        return answer

    @rule(name=st.sampled_from(NAMES), index=st.integers(0, 5))
    def work(self, name: str, index: int) -> None:
        """What a producer does most of the time, so that there is something to disturb."""
        if not self.producers[name]:
            self.init(name, 0)
        self.add(name, 0, {index})

    @rule(name=st.sampled_from(NAMES), lag=st.booleans(), commit=st.booleans())
    def add_and_end_at_once(self, name: str, lag: bool, commit: bool) -> None:
        """A client that doesn't wait for answers."""
        self.work(name, 0)
        if lag:
            self.partition.hold = True
        self.work(name, 1)
        self.end(name, 0, commit)

    @rule(seconds=st.sampled_from([0.01, 0.3, 2.0, 11.0, 61.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # Replicas and brokers

    @rule()
    def replicas_lag(self) -> None:
        self.partition.hold = True

    @rule()
    def replicas_catch_up(self) -> None:
        self.partition.hold = False
        self.partition.commit()
        self.clock.run_due()

    @rule(code=st.sampled_from([None, None, Code.NOT_ENOUGH_REPLICAS, Code.KAFKA_STORAGE_ERROR]))
    def log_refuses(self, code: Code | None) -> None:
        self.partition.refuse = code

    @rule()
    def leadership_in_doubt(self) -> None:
        self.partition.waiters.fail(Code.NOT_LEADER_OR_FOLLOWER)
        self.clock.run_due()

    @rule(kept=st.integers(0, 5))
    def fail_over(self, kept: int) -> None:
        """Another broker takes over, with some of what was not committed."""
        old = self.partition
        self.world.coordinator.on_stop(TRANSACTION_TOPIC, 0)
        old.waiters.fail(Code.NOT_LEADER_OR_FOLLOWER)
        new = self.partition = ReplicatedPartition(self.check_record)
        for batch in old.batches:
            offset = next(header.base_offset for _, header in iter_headers(batch))
            if offset < old.committed_end or kept:
                kept -= offset >= old.committed_end
                new.batches.append(batch)
                new.end_offset = offset + 1
            else:
                break
        self.last = {name: each for name, each in new.rows(new.end_offset) if each is not None}
        new.leader_epoch = old.leader_epoch + 1
        next_id = self.world.next_producer_id + 1000
        self.world.coordinator.stop()
        # A new leader shows what it has only when its replicas have it, too.
        new.committed_end = new.end_offset
        self.world = self.open(next_id)

    @rule(hold=st.booleans())
    def network_is_slow(self, hold: bool) -> None:
        self.brokers.hold = hold

    @precondition(lambda self: self.brokers.waiting)
    @rule(number=st.integers(0, 3), what=st.sampled_from(["deliver", "deliver", "unanswered", "drop"]))
    def network(self, number: int, what: str) -> None:
        number %= len(self.brokers.waiting)
        if what == "drop":
            self.brokers.drop(number)
        else:
            self.brokers.deliver(number, answer=what == "deliver")

    @rule(index=st.integers(0, 5), leader=st.sampled_from([-1, 1, 2, 3]))
    def leader_moves(self, index: int, leader: int) -> None:
        if ("t", index) in self.brokers.leaders:
            self.brokers.leaders["t", index] = leader

    @rule(index=st.integers(4, 5))
    def topic_is_deleted(self, index: int) -> None:
        self.brokers.leaders.pop(("t", index), None)

    @rule(
        index=st.integers(0, 5),
        code=st.sampled_from([None, Code.NOT_ENOUGH_REPLICAS, Code.REQUEST_TIMED_OUT, Code.CORRUPT_MESSAGE]),
    )
    def partition_refuses(self, index: int, code: Code | None) -> None:
        if code is None:
            self.brokers.errors.pop(("t", index), None)
        else:
            self.brokers.errors["t", index] = code

    # What always holds

    def check_marker(self, partition: TopicPartition, marker: Marker) -> None:
        """The log has committed this decision, and it hasn't been completed."""
        rows = self.partition.rows(self.partition.committed_end)
        metadata = [each for _, each in rows if each is not None and each.producer_id == marker.producer_id][
            -1
        ]
        assert metadata.state in PREPARED
        assert metadata.producer_epoch == marker.producer_epoch
        assert metadata.commits == marker.commit
        assert partition in metadata.partitions

    def check_record(self, name: str, metadata: TransactionMetadata) -> None:
        """A record follows from the one before; a completed transaction has all its markers.

        Only the producer decides under its epoch; the coordinator aborts with a higher one.
        """
        before = self.last.get(name)
        self.last[name] = metadata
        if metadata.producer_id not in self.order[name]:
            self.order[name].append(metadata.producer_id)
        if metadata.next_producer_id >= 0:
            self.order[name].append(metadata.next_producer_id)
        if before is None:
            return
        assert metadata.state in NEXT[before.state], (before, metadata)
        if metadata.producer_id == before.producer_id:
            assert metadata.producer_epoch in (before.producer_epoch, before.producer_epoch + 1)
        if metadata.state in PREPARED:
            assert metadata.partitions == before.partitions
            if metadata.producer_epoch == before.producer_epoch:
                assert (name, metadata.producer_id, metadata.producer_epoch, metadata.commits) in self.wanted
            elif metadata.commits:
                assert (name, *before.next_producer, True) in self.wanted
            self.before[name] = {each: self.count(each, metadata) for each in metadata.partitions}
        elif before.state in PREPARED:
            assert (metadata.producer_id, metadata.producer_epoch) == before.next_producer
            assert not metadata.partitions
            for partition in before.partitions:
                if partition in self.brokers.leaders:
                    assert self.count(partition, before) > self.before[name][partition]

    def count(self, partition: TopicPartition, metadata: TransactionMetadata) -> int:
        wanted = (metadata.producer_id, metadata.producer_epoch, metadata.commits)
        return sum(marker[:3] == wanted for marker in self.brokers.markers[partition])

    @invariant()
    def answers_come_in_time(self) -> None:
        for deadline, answer in self.answers:
            assert answer or self.clock.time <= deadline
        self.answers = [each for each in self.answers if not each[1]]

    def teardown(self) -> None:
        """Everything works again: all requests are answered, and all decisions are carried out."""
        if not hasattr(self, "world"):
            return
        self.partition.hold, self.partition.refuse = False, None
        self.partition.commit()
        self.brokers.errors.clear()
        self.brokers.hold = False
        for partition in self.brokers.leaders:
            self.brokers.leaders[partition] = 1
        while self.brokers.waiting:
            self.brokers.deliver()
        self.clock.advance(100)
        assert all(answer for _, answer in self.answers)
        for name in NAMES:
            assert self.world.state(name) not in {"Ongoing", "PrepareCommit", "PrepareAbort"}
            producer = self.world.producer(name)
            self.wanted.add((name, *producer, True))
            assert self.world.add(producer, (0,), name) == [Code.NONE]
            assert self.world.end(producer, True, name) == [Code.NONE]
            assert self.world.state(name) == "CompleteCommit"
            for commit in (True, False):
                self.wanted.add((name, *producer, commit))
                assert self.world.add_for_leader(producer, name=name) == [Code.NONE]
                [(error, *following)] = self.world.end_with_bump(producer, commit, name)
                assert error == 0
                assert [(0, *following)] == self.world.end_with_bump(producer, commit, name)
                producer = Producer(*following)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
