"""Markers that a defect gets in the way of: they are sent again, and other transactions' aren't held up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.support.clock import FakeClock

from ottla_broker.coordinator.transaction.local_delivery import LocalDelivery
from ottla_broker.coordinator.transaction.markers import (
    ANSWER_SECONDS,
    REFUSED_SECONDS,
    RETRY_SECONDS,
    MarkerJob,
    MarkerSender,
    Written,
)
from ottla_broker.replica.txn_markers import TxnMarker
from ottla_protocol.errors import ErrorCode


class Defect(Exception):
    """No error that any of this expects."""


class Delivery:
    """A way to one broker, with defects."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.sender = MarkerSender(self.clock, lambda topic, index: 1, self)
        self.asked: list[list[int]] = []
        self.unanswered: list[Written] = []
        self.completed: list[int] = []
        self.defect = ""

    def __call__(self, broker_id: int, markers: Sequence[TxnMarker], written: Written) -> None:
        self.asked.append([marker.producer_id for marker in markers])
        if self.defect == "raises":
            raise Defect
        if self.defect == "silent":
            self.unanswered.append(written)
            return
        written([dict.fromkeys(marker.partitions, ErrorCode.NONE) for marker in markers])
        if self.defect == "raises after its answer":
            raise Defect

    def end(self, producer_id: int, done: Callable[[], None] | None = None) -> MarkerJob:
        """Send the markers of a transaction of two partitions."""
        job = MarkerJob(
            f"tx-{producer_id}",
            producer_id,
            0,
            True,
            [("t", 0), ("t", 1)],
            lambda: 0,
            done or (lambda: self.completed.append(producer_id)),
        )
        self.sender.send(job)
        return job


@pytest.mark.parametrize("defect", ["raises", "silent"])
def test_markers_are_sent_again_after_a_defect(defect: str) -> None:
    delivery = Delivery()
    delivery.defect = defect
    delivery.end(1)
    delivery.end(2)
    assert not delivery.completed
    delivery.defect = ""
    delivery.clock.advance(ANSWER_SECONDS + RETRY_SECONDS[1])
    assert sorted(delivery.completed) == [1, 2]
    delivery.end(3)
    assert delivery.completed[-1] == 3
    assert delivery.clock.pending == 0


def test_an_answer_after_the_deadline_changes_nothing() -> None:
    delivery = Delivery()
    delivery.defect = "silent"
    job = delivery.end(1)
    delivery.clock.advance(ANSWER_SECONDS)
    delivery.clock.advance(RETRY_SECONDS[0])
    late, answer = delivery.unanswered
    late([dict.fromkeys(job.left, ErrorCode.NONE)])
    assert len(job.left) == 2
    answer([dict.fromkeys(job.left, ErrorCode.NONE)])
    answer([dict.fromkeys(job.left, ErrorCode.NONE)])
    assert delivery.completed == [1]


def test_a_delivery_that_raises_after_its_answer_has_answered() -> None:
    delivery = Delivery()
    delivery.defect = "raises after its answer"
    delivery.end(1)
    assert (delivery.asked, delivery.completed) == ([[1]], [1])
    assert delivery.clock.pending == 0


def test_a_transaction_that_can_not_be_completed_holds_up_no_other() -> None:
    delivery = Delivery()
    failures = [Defect(), Defect()]

    def done() -> None:
        if failures:
            raise failures.pop()
        delivery.completed.append(2)

    delivery.defect = "silent"
    delivery.end(1)
    delivery.end(2, done)
    delivery.end(3)
    delivery.defect = ""
    delivery.unanswered[0]([dict.fromkeys([("t", 0), ("t", 1)], ErrorCode.NONE)])
    assert delivery.asked == [[1], [2, 3]]
    assert delivery.completed == [1, 3]
    delivery.clock.advance(2 * REFUSED_SECONDS)
    assert delivery.completed == [1, 3, 2]
    assert delivery.clock.pending == 0


def test_a_transaction_whose_coordinator_moves_is_not_completed_later() -> None:
    delivery = Delivery()

    def done() -> None:
        delivery.completed.append(1)
        raise Defect

    job = delivery.end(1, done)
    job.cancel()
    delivery.clock.advance(10 * REFUSED_SECONDS)
    assert delivery.completed == [1]


def test_local_markers_that_raise_are_written_later() -> None:
    clock = FakeClock()
    defects = [Defect()]
    completed: list[int] = []

    def write(markers: Sequence[TxnMarker], written: Written) -> None:
        if defects:
            raise defects.pop()
        written([dict.fromkeys(marker.partitions, ErrorCode.NONE) for marker in markers])

    sender = MarkerSender(clock, lambda topic, index: 1, LocalDelivery(clock, write))
    sender.send(MarkerJob("tx", 1, 0, True, [("t", 0)], lambda: 0, lambda: completed.append(1)))
    clock.run_due()
    assert not completed
    clock.advance(RETRY_SECONDS[0])
    assert completed == [1]
