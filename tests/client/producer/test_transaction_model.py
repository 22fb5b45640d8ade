"""Transactions against models of a coordinator and of leaders that refuse, lose requests and answers, and time out.

What the classes of the client do is real; the network, the brokers and the time are the test's.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.depth import examples

from ottla_client.errors import (
    ConnectionLostError,
    TransactionAbortedError,
    TransactionStateError,
)
from ottla_client.producer.batch import Batch
from ottla_client.producer.queue import Answer, PartitionQueue, RetryPolicy
from ottla_client.producer.sequences import Sequences
from ottla_client.producer.transaction_manager import Ask, OffsetsToCommit, TransactionManager
from ottla_client.producer.transaction_state import REACTIONS, TRANSITIONS, Reaction, Step, TransactionState
from ottla_client.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla_protocol.messages.end_txn import EndTxnResponse
from ottla_protocol.messages.init_producer_id import InitProducerIdResponse
from ottla_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla_protocol.records.batch import TRANSACTIONAL, crc_is_valid, read_header
from ottla_protocol.records.record import decode_records

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
GROUP = ConsumerGroupMetadata("g", 3, "member")
DELIVERY_TIMEOUT = 50.0
IN_FLIGHT = 5
NONE = ErrorCode.NONE


class ModelCoordinator:
    """One transactional id, as ``TransactionCoordinator`` and ``TransactionMetadata`` keep it."""

    def __init__(self) -> None:
        self.producer_id = 1
        self.epoch = -1
        self.last_epoch = -1
        self.version_2 = False
        """Whether the client's transaction is one of version 2."""
        self.raised = False
        """Whether the end of the transaction has raised the epoch."""
        self.state = "Empty"
        self.partitions: set[TopicPartition] = set()
        self.groups: set[str] = set()
        self.pending: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.logs: dict[TopicPartition, ModelLog] = {}

    def handle(self, ask: Ask) -> Any:
        request: Any = ask.request
        if ask.step is Step.INIT_PRODUCER_ID:
            code = self._init(request.producer_id, request.producer_epoch)
            return InitProducerIdResponse(
                error_code=code, producer_id=self.producer_id, producer_epoch=self.epoch
            )
        if ask.step is Step.ADD_PARTITIONS:
            code = self._in_transaction(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
            if not code:
                self.partitions |= ask.partitions
            return added(ask, code)
        if ask.step is Step.ADD_OFFSETS:
            code = self._in_transaction(request.producer_id, request.producer_epoch)
            if not code:
                self.groups.add(request.group_id)
            return AddOffsetsToTxnResponse(error_code=code)
        if ask.step is Step.COMMIT_OFFSETS:
            code = NONE if request.producer_epoch == self.epoch else ErrorCode.INVALID_PRODUCER_EPOCH
            if self.version_2 and not code:
                code = self._in_transaction(request.producer_id, request.producer_epoch)
            if not code:
                for topic in request.topics:
                    for each in topic.partitions:
                        self.pending[TopicPartition(topic.name, each.partition_index)] = each.committed_offset
            return offsets_committed(ask, code)
        code = self._end_with_bump(request) if self.version_2 else self._end(request)
        if self.version_2 and not code:
            return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        return EndTxnResponse(error_code=code)

    def add(self, partition: TopicPartition, epoch: int) -> ErrorCode:
        """A leader asks, in version 2."""
        code = self._in_transaction(self.producer_id, epoch)
        if not code:
            self.partitions.add(partition)
        return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code

    def _init(self, producer_id: int, epoch: int) -> ErrorCode:
        if self.state.startswith("Prepare"):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if producer_id >= 0 and epoch not in (self.epoch, self.last_epoch):
            return ErrorCode.PRODUCER_FENCED
        if self.state == "Ongoing":
            self.time_out()
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if producer_id < 0 or epoch == self.epoch:  # otherwise the answer to an earlier try was lost
            self.last_epoch = self.epoch if producer_id >= 0 else -1
            self.epoch += 1
        self.state = "Empty"
        return NONE

    def _known(self, producer_id: int, epoch: int) -> ErrorCode:
        if producer_id != self.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return NONE if epoch == self.epoch else ErrorCode.PRODUCER_FENCED

    def _in_transaction(self, producer_id: int, epoch: int) -> ErrorCode:
        code = self._known(producer_id, epoch)
        if code:
            return code
        if self.state.startswith("Prepare"):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        self.state = "Ongoing"
        self.raised = False
        return NONE

    def _end_with_bump(self, request: Any) -> ErrorCode:
        kind = "Commit" if request.committed else "Abort"
        if self.raised and request.producer_epoch == self.epoch - 1:
            if self.state.startswith("Prepare"):
                return ErrorCode.CONCURRENT_TRANSACTIONS
            return NONE if self.state == f"Complete{kind}" else ErrorCode.INVALID_TXN_STATE
        code = self._known(request.producer_id, request.producer_epoch)
        if code:
            return code
        if self.state.startswith("Prepare"):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if request.committed and self.state != "Ongoing":
            return ErrorCode.INVALID_TXN_STATE
        self.epoch, self.last_epoch, self.raised = self.epoch + 1, self.epoch, True
        self.state = f"Prepare{kind}"
        return NONE

    def _end(self, request: Any) -> ErrorCode:
        code = self._known(request.producer_id, request.producer_epoch)
        if code:
            return code
        kind = "Commit" if request.committed else "Abort"
        if self.state == "Ongoing":
            self.state = f"Prepare{kind}"
            self.raised = False
            return NONE
        if self.state == f"Complete{kind}":
            return NONE
        if self.state == f"Prepare{kind}":
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.INVALID_TXN_STATE

    def time_out(self) -> None:
        """The transaction takes too long, or another producer asks for the id: abort it and fence."""
        self.raised = self.version_2
        self.last_epoch = self.epoch if self.raised else -1
        self.epoch += 1
        self.state = "PrepareAbort"

    def write_markers(self) -> None:
        if not self.state.startswith("Prepare"):
            return
        commit = self.state == "PrepareCommit"
        for partition in self.partitions:
            self.logs[partition].end(self.epoch, commit)
        if commit:
            self.committed |= self.pending
        self.partitions, self.groups, self.pending = set(), set(), {}
        self.state = self.state.replace("Prepare", "Complete")


class ModelLog:
    """One partition, with the producer's state and a check of transactions as of KIP-890."""

    def __init__(self, partition: TopicPartition, coordinator: ModelCoordinator) -> None:
        self.partition = partition
        self.coordinator = coordinator
        self.epoch = -1
        self.next = 0
        self.recent: list[tuple[int, int, int]] = []
        self.open: list[int] = []
        self.visible: list[int] = []
        self.size = 0

    def append(self, data: bytes) -> Answer:
        header = read_header(data)
        assert crc_is_valid(data, 0, header)
        assert header.attributes & TRANSACTIONAL
        sequence, count, epoch = header.base_sequence, header.record_count, header.producer_epoch
        if epoch < self.epoch:
            return Answer(ErrorCode.INVALID_PRODUCER_EPOCH)
        if epoch == self.epoch:
            for known, records, offset in self.recent:
                if (known, records) == (sequence, count):
                    return Answer(NONE, offset)
        coordinator = self.coordinator
        begins = epoch != self.epoch or not self.open
        if coordinator.version_2 and begins and (code := coordinator.add(self.partition, epoch)):
            return Answer(code)
        if coordinator.state != "Ongoing" or self.partition not in coordinator.partitions:
            return Answer(ErrorCode.INVALID_TXN_STATE)
        if epoch != coordinator.epoch:
            return Answer(ErrorCode.INVALID_PRODUCER_EPOCH)
        if sequence != (self.next if epoch == self.epoch else 0):
            return Answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if epoch != self.epoch:
            self.recent = []
        offset = self.size
        self.open += [int(record.value or b"") for record in decode_records(data)]
        self.size += count
        self.epoch, self.next = epoch, sequence + count
        self.recent = [*self.recent, (sequence, count, offset)][-5:]
        return Answer(NONE, offset)

    def end(self, epoch: int, commit: bool) -> None:
        if commit:
            self.visible += self.open
        if epoch > self.epoch:
            self.epoch, self.next, self.recent = epoch, 0, []
        self.open = []
        self.size += 1


def added(ask: Ask, code: int) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name="t",
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=each.partition, partition_error_code=code
                    )
                    for each in ask.partitions
                ],
            )
        ]
    )


def offsets_committed(ask: Ask, code: int) -> TxnOffsetCommitResponse:
    assert ask.offsets is not None
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=each.partition, error_code=code)
                    for each in ask.offsets.offsets
                ],
            )
        ]
    )


def answer(ask: Ask, code: int) -> Any:
    """A response with one error code."""
    if ask.step is Step.ADD_PARTITIONS:
        return added(ask, code)
    if ask.step is Step.COMMIT_OFFSETS:
        return offsets_committed(ask, code)
    made: dict[Step, Callable[..., Any]] = {
        Step.INIT_PRODUCER_ID: InitProducerIdResponse,
        Step.ADD_OFFSETS: AddOffsetsToTxnResponse,
        Step.END: EndTxnResponse,
    }
    return made[ask.step](error_code=code)


class Known:
    """One transaction, as the application knows it."""

    def __init__(self) -> None:
        self.values: dict[TopicPartition, list[int]] = {each: [] for each in PARTITIONS}
        self.offsets: dict[TopicPartition, int] = {}
        self.sent_offsets: list[OffsetsToCommit] = []
        self.batches: list[Batch] = []
        self.outcome = "open"


class Model(RuleBasedStateMachine):
    """A transaction that was committed is there as a whole, one that was aborted not at all."""

    @initialize()
    def begin_all(self) -> None:
        self.now = 0.0
        self.coordinator = ModelCoordinator()
        self.logs = {each: ModelLog(each, self.coordinator) for each in PARTITIONS}
        self.coordinator.logs = self.logs
        self.states = [TransactionState.UNINITIALIZED]
        self.drop_due = False
        self.manager = TransactionManager("id", 60_000, self.changed)
        retries = RetryPolicy(DELIVERY_TIMEOUT, lambda attempts: 1.0)
        self.queues = {
            each: PartitionQueue(
                "t",
                each.partition,
                retries,
                Sequences(self.manager.ids),
                lambda size: None,
                lambda error, numbered: self.manager.batch_failed(error, numbered=numbered),
            )
            for each in PARTITIONS
        }
        self.requests: list[tuple[PartitionQueue, Batch, bytes]] = []
        self.answers: list[tuple[PartitionQueue, Batch, Answer]] = []
        self.records = 0
        self.transactions: list[Known] = []
        self.draining = False
        self.timed_out = False
        self.manager.initialize()

    def changed(self) -> None:
        state = self.manager.state if hasattr(self, "manager") else TransactionState.UNINITIALIZED
        if state is self.states[-1]:
            return
        assert state in TRANSITIONS[self.states[-1]]
        self.states.append(state)
        if state is TransactionState.ABORTABLE_ERROR:
            self.drop_due = True

    def settle(self) -> None:
        """What ``Transactions`` does after each change."""
        manager = self.manager
        if self.drop_due:
            self.drop_due = False
            if manager.state is TransactionState.ABORTABLE_ERROR:
                self.drop()
        ending = manager.state in (TransactionState.COMMITTING, TransactionState.ABORTING)
        if self.draining and ending and not any(q.batches or q.in_flight for q in self.queues.values()):
            self.draining = False
            manager.drained()
        if self.transactions and self.transactions[-1].outcome in ("open", "committing", "aborting"):
            its = self.transactions[-1]
            if manager.state is TransactionState.FATAL_ERROR:
                its.outcome = "unknown" if its.outcome == "committing" else "aborted"
                for queue in self.queues.values():
                    queue.abandon(RuntimeError("fatal"))
            elif manager.state in (TransactionState.READY, TransactionState.INITIALIZING):
                assert its.outcome != "open"
                its.outcome = "committed" if its.outcome == "committing" else "aborted"
            elif manager.state is TransactionState.ABORTABLE_ERROR:
                its.outcome = "open"

    def drop(self) -> None:
        for queue in self.queues.values():
            queue.drop_unsent(self.manager.aborted())

    # The application.

    @precondition(lambda self: self.manager.state in (TransactionState.READY, TransactionState.INITIALIZING))
    @rule(
        counts=st.lists(st.integers(0, 3), min_size=2, max_size=2),
        rounds=st.integers(0, 3),
        version_2=st.booleans(),
    )
    def begin(self, counts: list[int], rounds: int, version_2: bool) -> None:
        for _ in range(20):
            if self.manager.state is not TransactionState.READY:
                self.all_goes_well(1)
        if self.manager.state is TransactionState.FATAL_ERROR:
            return
        self.manager.begin(version_2=version_2)
        self.coordinator.version_2 = version_2
        self.transactions.append(Known())
        for partition, count in zip(PARTITIONS, counts, strict=True):
            if count:
                self.send(partition, count)
        self.all_goes_well(rounds)

    @precondition(lambda self: self.manager.state is TransactionState.IN_TRANSACTION)
    @rule()
    def begin_twice(self) -> None:
        with pytest.raises(TransactionStateError):
            self.manager.begin()

    @precondition(lambda self: self.manager.state is TransactionState.IN_TRANSACTION)
    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 3))
    def send(self, partition: TopicPartition, count: int) -> None:
        self.manager.check_sending()
        batch = self.queues[partition].open(self.now)
        batch.left = 0
        self.transactions[-1].batches.append(batch)
        for _ in range(count):
            batch.append(b"%d" % self.records, None, 1_000, ())
            self.transactions[-1].values[partition].append(self.records)
            self.records += 1
        self.queues[partition].close_tail()

    @precondition(lambda self: self.manager.state is TransactionState.IN_TRANSACTION)
    @rule(partition=st.sampled_from(PARTITIONS))
    def send_offsets(self, partition: TopicPartition) -> None:
        self.records += 1
        its = self.transactions[-1]
        its.sent_offsets.append(self.manager.add_offsets(GROUP, {partition: OffsetAndMetadata(self.records)}))
        its.offsets[partition] = self.records

    @precondition(lambda self: self.manager.state is TransactionState.IN_TRANSACTION)
    @rule()
    def commit(self) -> None:
        self.manager.commit()
        self.transactions[-1].outcome = "committing"
        self.draining = True

    @precondition(lambda self: self.manager.state is TransactionState.ABORTABLE_ERROR)
    @rule()
    def commit_after_a_failure(self) -> None:
        with pytest.raises(TransactionAbortedError):
            self.manager.commit()

    @precondition(
        lambda self: (
            self.manager.state is TransactionState.ABORTABLE_ERROR
            or (self.manager.state is TransactionState.IN_TRANSACTION and len(self.transactions) % 2 == 0)
        )
    )
    @rule()
    def abort(self) -> None:
        self.manager.abort()
        self.transactions[-1].outcome = "aborting"
        self.drop()
        self.draining = True

    @precondition(lambda self: self.manager.state is TransactionState.COMMITTING)
    @rule()
    def abort_while_committing(self) -> None:
        with pytest.raises(TransactionStateError):
            self.manager.abort()

    # Producing.

    def may_send(self, partition: TopicPartition, queue: PartitionQueue) -> bool:
        manager = self.manager
        if manager.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
            if partition not in manager.partitions:
                manager.add_partition(partition)
            return partition in manager.partitions
        return bool(queue.batches) and queue.batches[0].sequence is not None

    @rule()
    def send_requests(self) -> None:
        for partition, queue in self.queues.items():
            while (
                queue.batches
                and len(queue.in_flight) < IN_FLIGHT
                and self.may_send(partition, queue)
                and queue.ready(self.now) is not None
            ):
                batch, identity = queue.start_next()
                self.requests.append((queue, batch, bytes(batch.encode(0, None, identity))))

    @precondition(lambda self: self.requests)
    @rule(at=st.integers(0, 10))
    def leader_appends(self, at: int) -> None:
        queue, batch, data = self.requests.pop(self.first_of_a_queue(at))
        self.answers.append((queue, batch, self.logs[PARTITIONS[queue.partition]].append(data)))

    def first_of_a_queue(self, at: int) -> int:
        """Requests of a partition arrive in order."""
        at %= len(self.requests)
        return next(place for place, each in enumerate(self.requests) if each[0] is self.requests[at][0])

    @precondition(lambda self: self.requests)
    @rule(
        code=st.sampled_from(
            [
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.INVALID_RECORD,
                ErrorCode.TRANSACTION_ABORTABLE,
                ErrorCode.MESSAGE_TOO_LARGE,
            ]
        )
    )
    def leader_refuses(self, code: ErrorCode) -> None:
        queue, batch, data = self.requests.pop(0)
        log = self.logs[PARTITIONS[queue.partition]]
        header = read_header(data)
        known = header.producer_epoch == log.epoch and any(
            each[:2] == (header.base_sequence, header.record_count) for each in log.recent
        )
        self.answers.append((queue, batch, log.append(data) if known else Answer(code)))

    @precondition(lambda self: self.answers)
    @rule()
    def take_answer(self) -> None:
        queue, batch, answer = self.answers.pop(0)
        queue.answered(batch, answer, self.now)

    @rule(processed=st.integers(0, 5))
    def connection_is_cut(self, processed: int) -> None:
        for queue, _, data in self.requests[:processed]:
            self.logs[PARTITIONS[queue.partition]].append(data)
        lost = [each[:2] for each in (*self.answers, *self.requests)]
        self.requests, self.answers = [], []
        for queue, batch in lost:
            queue.lost(batch, ConnectionLostError("cut"), self.now)

    # The coordinator.

    def due(self) -> Ask | None:
        return self.manager.next()

    @precondition(lambda self: self.due() is not None)
    @rule()
    def coordinator_answers(self) -> None:
        ask = self.due()
        assert ask is not None
        self.manager.sent(ask)
        self.manager.answered(ask, self.coordinator.handle(ask))

    @precondition(lambda self: self.due() is not None)
    @rule(arrives=st.booleans())
    def coordinator_is_lost(self, arrives: bool) -> None:
        ask = self.due()
        assert ask is not None
        self.manager.sent(ask)
        if arrives:
            self.coordinator.handle(ask)

    @precondition(lambda self: self.due() is not None)
    @rule(
        code=st.sampled_from(
            [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_TOPIC_ID]
        )
    )
    def coordinator_is_not_ready(self, code: ErrorCode) -> None:
        ask = self.due()
        assert ask is not None
        self.manager.sent(ask)
        before = self.manager.state
        assert self.manager.answered(ask, answer(ask, code)) in (Reaction.RETRY, Reaction.FIND_COORDINATOR)
        assert self.manager.state is before

    @precondition(lambda self: (ask := self.due()) is not None and ask.step is Step.COMMIT_OFFSETS)
    @rule()
    def group_has_moved_on(self) -> None:
        ask = self.due()
        assert ask is not None
        self.manager.sent(ask)
        self.manager.answered(ask, answer(ask, ErrorCode.ILLEGAL_GENERATION))
        assert self.manager.state in (TransactionState.ABORTABLE_ERROR, TransactionState.ABORTING)

    @precondition(lambda self: (ask := self.due()) is not None and ask.step is Step.ADD_PARTITIONS)
    @rule()
    def topic_is_forbidden(self) -> None:
        ask = self.due()
        assert ask is not None
        self.manager.sent(ask)
        self.manager.answered(ask, answer(ask, ErrorCode.TOPIC_AUTHORIZATION_FAILED))

    @rule(rounds=st.integers(1, 6))
    def all_goes_well(self, rounds: int) -> None:
        """Most steps of most transactions."""
        for _ in range(rounds):
            self.settle()
            self.send_requests()
            while self.requests:
                self.leader_appends(0)
            while self.answers:
                self.take_answer()
            self.settle()
            if self.due() is not None:
                self.coordinator_answers()
            self.coordinator.write_markers()

    @rule()
    def coordinator_writes_markers(self) -> None:
        self.coordinator.write_markers()

    @precondition(lambda self: self.coordinator.state == "Ongoing" and len(self.states) > 12)
    @rule()
    def transaction_takes_too_long(self) -> None:
        self.coordinator.time_out()
        self.timed_out = True

    @rule(seconds=st.sampled_from([0.5, 2.0, 30.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for queue in self.queues.values():
            queue.expire(self.now)

    # What must hold.

    @invariant()
    def whole_or_not_at_all(self) -> None:
        if not hasattr(self, "queues"):
            return
        self.settle()
        visible = {each: self.logs[each].visible for each in PARTITIONS}
        for partition in PARTITIONS:
            assert all(first < second for first, second in pairwise(visible[partition]))
        for its in self.transactions:
            sent = {(each, value) for each in PARTITIONS for value in its.values[each]}
            seen = {(each, value) for each, value in sent if value in visible[each]}
            assert seen in (set(), sent), its.outcome
            if its.outcome == "aborted":
                assert not seen
                assert not set(its.offsets.values()) & set(self.coordinator.committed.values())

    def teardown(self) -> None:
        """With brokers and a network that work, every transaction ends."""
        if not hasattr(self, "queues"):
            return
        for _ in range(1000):
            self.all_goes_well(1)
            for queue in self.queues.values():
                queue.not_before = 0.0
            state = self.manager.state
            if state is TransactionState.IN_TRANSACTION:
                self.commit()
            elif state is TransactionState.ABORTABLE_ERROR:
                self.abort()
            elif state in (TransactionState.READY, TransactionState.FATAL_ERROR) and not any(
                queue.batches or queue.in_flight for queue in self.queues.values()
            ):
                break
        allowed = (TransactionState.READY, TransactionState.FATAL_ERROR)[: 1 + self.timed_out]
        assert self.manager.state in allowed, self.states
        self.whole_or_not_at_all()
        for its in self.transactions:
            assert its.outcome in ("committed", "aborted", "unknown")
            assert all(each.done for each in its.sent_offsets)
            assert all(batch.done for batch in its.batches)
            if its.outcome == "committed":
                assert not any(batch.error for batch in its.batches)
                for partition, values in its.values.items():
                    assert set(values) <= set(self.logs[partition].visible)
        if self.manager.state is TransactionState.READY:
            committed = [its.offsets for its in self.transactions if its.outcome == "committed"]
            expected: dict[TopicPartition, int] = {}
            for offsets in committed:
                expected |= offsets
            assert self.coordinator.committed == expected


TestTransactions = Model.TestCase
TestTransactions.settings = settings(max_examples=examples(60), stateful_step_count=50, deadline=None)
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")


def test_every_state_is_reached_and_left() -> None:
    reached = set().union(*TRANSITIONS.values())
    assert reached == set(TransactionState) - {TransactionState.UNINITIALIZED}
    assert [state for state, after in TRANSITIONS.items() if not after] == [TransactionState.FATAL_ERROR]
    assert all(
        TransactionState.FATAL_ERROR in after
        for state, after in TRANSITIONS.items()
        if state is not TransactionState.FATAL_ERROR
    )


@pytest.mark.parametrize("step", Step)
def test_reactions_know_every_code(step: Step) -> None:
    assert set(REACTIONS[step]) == set(ErrorCode)
    assert REACTIONS[step][ErrorCode.NONE] is Reaction.DONE
    for code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        assert REACTIONS[step][code] is Reaction.FENCED
