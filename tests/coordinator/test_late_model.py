"""No request takes effect in another transaction than its own, in any order of events (decision 9).

And a producer whose requests are late or whose successor has come never fails for that. ``late_model`` explores this
with the broker's own rules; weaker ones are shown to be too weak, so the exploration is deep enough.
"""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from tests.coordinator.late_exploration import explore
from tests.coordinator.late_model import Api, Rules, Variant, Violation
from tests.support.depth import examples

from ottla_broker.log.heard_connections import Arrival, ConnectionAge, HeardConnections
from ottla_broker.log.producer_snapshot import SentBatch
from ottla_broker.log.producer_state import EndedTransaction, ProducerStates
from ottla_broker.log.verification import VerificationGuard
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import BatchHeader
from ottla_protocol.records.control import ControlRecord

RECORDS, OFFSETS, BOTH = (Api.PRODUCE,), (Api.OFFSETS,), (Api.PRODUCE, Api.OFFSETS)

HOLD = {
    "two connections break": Rules(RECORDS, leaves_batches=True, breaks=2),
    "a connection breaks, and an answer is lost": Rules(RECORDS, leaves_batches=True, losses=1),
    "offsets after an abort": Rules(OFFSETS, transactions=3),
    "the coordinator moves to the leader's broker": Rules(RECORDS, brokers=2, places=(0, 1, 0), moves=1),
    "requests are sent again on the same connection": Rules(RECORDS, repeats=1, leaves_batches=True),
    "a new id": Rules(RECORDS, is_new=True),
    "a new id, version 2": Rules(RECORDS, is_new=True, version=2),
    "a replaced instance": Rules((Api.PRODUCE, Api.PRODUCE), zombies=2, breaks=0),
    "a replaced instance, version 2": Rules(RECORDS, zombies=1, version=2),
    "two connections break, version 2": Rules(RECORDS, version=2, leaves_batches=True, breaks=2),
    "records and offsets, version 2": Rules(BOTH, version=2, leaves_batches=True),
    "records and offsets, two connections to a broker": Rules(BOTH, leaves_batches=True, shares=False),
}
DEEP = {
    "records, everything moves": Rules(RECORDS, brokers=2, moves=2),
    "offsets, everything moves": Rules(OFFSETS, brokers=2, moves=2),
    "requests are sent again, everything moves": Rules(OFFSETS, repeats=1, brokers=2, moves=1),
    "a replaced instance, and a connection breaks": Rules(RECORDS, zombies=1),
    "the coordinator moves, three transactions": Rules(
        RECORDS, brokers=2, places=(0, 1, 0), moves=1, transactions=3
    ),
    "both, two connections to a broker": Rules(BOTH, leaves_batches=True, shares=False, breaks=2),
}
if examples(10) > 10:
    HOLD |= DEEP


@pytest.mark.parametrize("rules", HOLD.values(), ids=HOLD)
def test_no_request_takes_effect_in_another_transaction(rules: Rules) -> None:
    assert explore(rules).states > 300


class TrustsForEver(HeardConnections):
    """A connection that has proven itself is trusted, also when its producer has left it."""

    def hear(self, connection: ConnectionAge, request: Hashable, now: float) -> Arrival:
        since = max(self.since, self.newest)
        if connection.accepted_at >= since:
            self.newest = connection.accepted_at
            return Arrival.TIMELY
        is_proven = connection.sent_after > connection.accepted_at
        timely = is_proven or connection.is_sent_after(since, request, now)
        return Arrival.TIMELY if timely else Arrival.UNCERTAIN


class ProvesWhatWasLeft(HeardConnections):
    """A connection may prove itself, also when its producer has spoken on a newer one."""

    def hear(self, connection: ConnectionAge, request: Hashable, now: float) -> Arrival:
        since = max(self.since, self.newest)
        if connection.is_sent_after(since, request, now):
            self.newest = max(self.newest, connection.accepted_at)
            return Arrival.TIMELY
        return Arrival.UNCERTAIN


class LeavesStates(ProducerStates):
    """A batch that is refused may leave the state of a verification, which later batches are compared with."""

    def needs_verification(self, producer_id: int, epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is None or entry.txn_first_offset < 0 or entry.epoch != epoch

    def check(
        self,
        header: BatchHeader,
        last_sequence: int,
        *,
        from_client: bool,
        guard: VerificationGuard | None = None,
    ) -> SentBatch | None:
        state = self.verifications.find(header.producer_id)
        if state is not None and header.base_sequence > state.lowest_sequence:
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        return super().check(header, last_sequence, from_client=from_client, guard=guard)


class TakesForRepetitions(ProducerStates):
    """A batch with the sequence number of an aborted one is a repetition."""

    def end_transaction(
        self, header: BatchHeader, marker: ControlRecord, marker_offset: int
    ) -> EndedTransaction | None:
        ended = super().end_transaction(header, marker, marker_offset)
        entry = self.producers[header.producer_id]
        entry.batches = [batch._replace(aborted=False) for batch in entry.batches]
        return ended


TOO_WEAK = {
    "a proven connection stays trusted, the coordinator moves": (
        Rules(RECORDS, brokers=2, places=(0, 1, 0), moves=1),
        Variant(heard=TrustsForEver),
        "takes effect late",
    ),
    "a proven connection stays trusted, after an abort": (
        Rules(OFFSETS, transactions=3),
        Variant(heard=TrustsForEver),
        "takes effect late",
    ),
    "two tries on a connection that was left": (
        Rules(RECORDS, repeats=1),
        Variant(heard=ProvesWhatWasLeft, arrives_together=False),
        "takes effect late",
    ),
    # What decision 9 gives up: only a client that sends again without an answer has this.
    "two tries on one connection, long after each other": (
        Rules(RECORDS, repeats=1, leaves_batches=True),
        Variant(arrives_together=False),
        "PRODUCE of 1 is written in 2",
    ),
    "the request that creates an id isn't noted": (
        Rules(RECORDS, is_new=True),
        Variant(notes_creation=False),
        "INIT of 0 takes effect late",
    ),
    "a refused batch leaves a state": (
        Rules((Api.PRODUCE, Api.PRODUCE), zombies=1, breaks=0, transactions=1),
        Variant(states=LeavesStates),
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
    ),
    "a sequence number that is used again": (
        Rules(RECORDS, losses=1, breaks=0, leaves_batches=True),
        Variant(states=TakesForRepetitions),
        "taken for one before, and lost",
    ),
}


@pytest.mark.parametrize(("rules", "variant", "what"), TOO_WEAK.values(), ids=TOO_WEAK)
def test_weaker_rules_are_too_weak(rules: Rules, variant: Variant, what: str) -> None:
    with pytest.raises(Violation, match=what):
        explore(rules, variant)
