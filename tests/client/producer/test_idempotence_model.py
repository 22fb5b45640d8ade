"""A partition's queue against a model of a broker that refuses, loses requests, loses answers and dies."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.depth import examples

from ottla_client.producer.batch import Batch
from ottla_client.producer.queue import Answer, PartitionQueue, RetryPolicy
from ottla_client.producer.sequences import ProducerIdHolder, Sequences
from ottla_client.types import ProducerIdAndEpoch
from ottla_protocol.errors import ErrorCode
from ottla_protocol.records.batch import crc_is_valid, read_header
from ottla_protocol.records.record import decode_records

DELIVERY_TIMEOUT = 50.0
IN_FLIGHT = 5


class ModelBroker:
    """The log of one partition, and the leader's state of producers (``ProducerStateManager``)."""

    def __init__(self, strict: bool) -> None:
        self.log: list[int] = []
        self.epoch = -1
        self.next = 0
        self.recent: list[tuple[int, int, int]] = []
        """Base sequence, records and base offset of the last five batches of the epoch."""
        self.strict = strict
        """Like brokers before 2.5, which expect an unknown producer to begin at 0."""

    def append(self, data: bytes) -> Answer:
        header = read_header(data)
        assert crc_is_valid(data, 0, header)
        sequence, count, epoch = header.base_sequence, header.record_count, header.producer_epoch
        if epoch < self.epoch:
            return Answer(ErrorCode.INVALID_PRODUCER_EPOCH)
        if epoch == self.epoch:
            for known, records, offset in self.recent:
                if (known, records) == (sequence, count):
                    return Answer(ErrorCode.NONE, offset)
            if sequence != self.next:
                return Answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        elif self.epoch < 0:
            if self.strict and sequence:
                return Answer(ErrorCode.UNKNOWN_PRODUCER_ID)
        elif sequence:
            return Answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if epoch != self.epoch:
            self.recent = []
        offset = len(self.log)
        self.log += [int(record.value or b"") for record in decode_records(data)]
        self.epoch = epoch
        self.next = (sequence + count) & 0x7FFFFFFF
        self.recent = [*self.recent, (sequence, count, offset)][-5:]
        return Answer(ErrorCode.NONE, offset)

    def forget_producers(self) -> None:
        self.epoch = -1
        self.recent = []


class Idempotence(RuleBasedStateMachine):
    """Whatever happens: the log has the records in the order of sending, none twice, and all that were acknowledged."""

    @initialize(
        strict=st.booleans(), epoch=st.sampled_from([0, 32_765]), first=st.sampled_from([0, 2**31 - 4])
    )
    def begin(self, strict: bool, epoch: int, first: int) -> None:
        self.now = 0.0
        self.broker = ModelBroker(strict and first == 0)
        self.holder = ProducerIdHolder()
        self.holder.current = ProducerIdAndEpoch(1, epoch)
        self.ids = 1
        self.borrowed = 0
        retries = RetryPolicy(DELIVERY_TIMEOUT, lambda attempts: 1.0)
        self.sequences = Sequences(self.holder)
        self.queue = PartitionQueue("t", 0, retries, self.sequences, self.deallocate)
        if first:
            self.sequences._identity = self.holder.current
            self.sequences._next = first
        self.requests: list[tuple[Batch, bytes]] = []
        self.answers: list[tuple[Batch, Answer]] = []
        self.records = 0
        self.made: list[tuple[Batch, int, int]] = []

    def deallocate(self, size: int) -> None:
        self.borrowed -= size

    # ---- the program

    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        batch = self.queue.open(self.now)
        batch.reserved = 100
        self.borrowed += 100
        batch.left = 0
        for _ in range(count):
            batch.append(b"%d" % self.records, None, 1_000, ())
            self.records += 1
        self.queue.close_tail()
        self.made.append((batch, self.records - count, count))

    # ---- the client

    def transmit(self) -> bool:
        if len(self.queue.in_flight) >= IN_FLIGHT or self.queue.ready(self.now) is None:
            return False
        batch, identity = self.queue.start_next()
        self.requests.append((batch, bytes(batch.encode(0, None, identity))))
        return True

    @rule()
    def send_requests(self) -> None:
        while self.transmit():
            pass

    @precondition(lambda self: self.answers)
    @rule()
    def take_answer(self) -> None:
        batch, answer = self.answers.pop(0)
        self.queue.answered(batch, answer, self.now)
        self.identify()

    def identify(self) -> None:
        if self.holder.current is None:
            self.ids += 1
            self.holder.current = ProducerIdAndEpoch(self.ids, 0)
            # A new id is a producer that the broker does not know.
            self.broker.forget_producers()

    # ---- the broker

    @precondition(lambda self: self.requests)
    @rule()
    def broker_appends(self) -> None:
        batch, data = self.requests.pop(0)
        self.answers.append((batch, self.broker.append(data)))

    @precondition(lambda self: self.requests and not self.forgotten)
    @rule(
        code=st.sampled_from(
            [
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.INVALID_RECORD,
                ErrorCode.MESSAGE_TOO_LARGE,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ]
        )
    )
    def broker_refuses(self, code: ErrorCode) -> None:
        batch, data = self.requests.pop(0)
        answer = self.broker.append(data) if self.is_known(data) else Answer(code)
        self.answers.append((batch, answer))

    def is_known(self, data: bytes) -> bool:
        """A broker doesn't refuse the content of a batch that it has appended already."""
        header = read_header(data)
        return header.producer_epoch == self.broker.epoch and any(
            (sequence, records) == (header.base_sequence, header.record_count)
            for sequence, records, _ in self.broker.recent
        )

    @precondition(lambda self: self.requests and not self.forgotten)
    @rule(
        code=st.sampled_from(
            [
                ErrorCode.REQUEST_TIMED_OUT,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                ErrorCode.UNKNOWN_SERVER_ERROR,
            ]
        )
    )
    def broker_appends_and_fails(self, code: ErrorCode) -> None:
        batch, data = self.requests.pop(0)
        answer = self.broker.append(data)
        self.answers.append((batch, answer._replace(code=code) if answer.code == 0 else answer))

    @rule(processed=st.integers(0, 5))
    def connection_is_cut(self, processed: int) -> None:
        """Some of the requests have reached the broker; no answer reaches the client."""
        for _, data in self.requests[:processed]:
            self.broker.append(data)
        lost = [batch for batch, _ in (*self.answers, *self.requests)]
        self.requests, self.answers = [], []
        for batch in lost:
            self.queue.lost(batch, ConnectionError("cut"), self.now)
        self.identify()

    @precondition(lambda self: not self.sequences.outstanding)
    @rule()
    def broker_forgets_producers(self) -> None:
        """The producer's records have been deleted by retention.

        A broker of 2.5 or later takes any number then. What follows when it refuses the first batch in that moment
        but takes the second is more than a producer can know.
        """
        self.broker.forget_producers()

    @property
    def forgotten(self) -> bool:
        return self.broker.epoch < 0 and bool(self.broker.log)

    # ---- time

    @rule(seconds=st.sampled_from([0.5, 2.0, 30.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.queue.expire(self.now)
        self.identify()

    # ---- what must hold

    @invariant()
    def in_order_and_once(self) -> None:
        log = self.broker.log
        assert all(first < second for first, second in pairwise(log)), log

    @invariant()
    def acknowledged_is_there(self) -> None:
        for batch, first, count in self.made:
            if not batch.done:
                continue
            for index in range(count):
                if batch.failure(index) is None:
                    offset = batch.metadata(index).offset
                    if offset >= 0:
                        assert self.broker.log[offset] == first + index
                    else:
                        assert first + index in self.broker.log

    @invariant()
    def numbers_are_continuous(self) -> None:
        numbers = [batch.sequence for batch in self.sequences.outstanding]
        assert numbers == sorted(numbers)  # type: ignore[type-var]
        assert len({id(batch) for batch in self.queue.batches}) == len(self.queue.batches)

    def teardown(self) -> None:
        """With a broker and a network that work, everything gets an outcome, and memory is given back."""
        if not hasattr(self, "queue"):
            return
        for _ in range(1000):
            self.send_requests()
            while self.requests:
                self.broker_appends()
            while self.answers:
                self.take_answer()
            self.now += 0.01
            self.queue.not_before = 0.0
            if not (self.queue.batches or self.queue.in_flight):
                break
        assert not self.queue.batches
        assert not self.queue.in_flight
        assert not self.sequences.outstanding
        assert self.borrowed == 0
        self.in_order_and_once()
        self.acknowledged_is_there()
        for batch, first, count in self.made:
            assert batch.done
            failed = [batch.failure(index) for index in range(count)]
            if not any(failed):
                assert set(range(first, first + count)) <= set(self.broker.log)


TestIdempotence = Idempotence.TestCase
TestIdempotence.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
