"""Markers for the coordinator's own broker: after the answer to EndTxn, and before anything else."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.support.clock import FakeClock

from ottla_broker.coordinator.transaction.local_delivery import LocalDelivery
from ottla_broker.coordinator.transaction.markers import Written
from ottla_broker.replica.txn_markers import TxnMarker
from ottla_protocol.errors import ErrorCode

MARKER = TxnMarker(1, 0, 0, True, [("t", 0)])


def test_markers_are_written_in_the_next_turn_and_once() -> None:
    clock = FakeClock()
    random = Random(1)
    asked: list[int] = []
    answered: list[int] = []

    def write(markers: Sequence[TxnMarker], written: Written) -> None:
        asked.append(len(markers))
        written([{("t", 0): ErrorCode.NONE}] * len(markers))

    deliver = LocalDelivery(clock, write)
    for number in range(1, 40):
        deliver(0, [MARKER] * number, lambda errors: answered.append(len(errors or ())))
        assert number not in asked
        if random.random() < 0.5:
            deliver.flush()
            assert asked[-1] == number
    clock.run_due()
    deliver.flush()
    assert asked == answered == list(range(1, 40))


def test_markers_that_follow_from_an_answer_are_written_too() -> None:
    clock = FakeClock()
    asked: list[Sequence[TxnMarker]] = []

    def write(markers: Sequence[TxnMarker], written: Written) -> None:
        asked.append(markers)
        if len(asked) < 3:
            deliver(0, [MARKER], written)

    deliver = LocalDelivery(clock, write)
    deliver(0, [MARKER], lambda _: None)
    clock.run_due()
    assert len(asked) == 3
