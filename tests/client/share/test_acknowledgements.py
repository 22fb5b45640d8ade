"""What becomes of records that a share consumer has handed out: every one of them has one outcome."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.depth import examples

from ottla_client import AcknowledgeType, TopicPartition
from ottla_client.errors import AcknowledgementError
from ottla_client.share_consumer.acknowledgements import GAP, AcknowledgedRun, Acknowledgements, HeldRecords

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
ACCEPT, RELEASE, REJECT = AcknowledgeType


class Bookkeeping(RuleBasedStateMachine):
    """Beside a dictionary of the records that the application has."""

    def __init__(self) -> None:
        super().__init__()
        self.held: HeldRecords[str] = HeldRecords()
        self.expected: dict[tuple[TopicPartition, int], tuple[str, int | None]] = {}
        self.noted: dict[tuple[str, int], int] = {}
        self.next = dict.fromkeys(PARTITIONS, 0)

    @rule(
        partition=st.sampled_from(PARTITIONS),
        count=st.integers(1, 4),
        gap=st.booleans(),
        source=st.sampled_from("ab"),
    )
    def hand_out(self, partition: TopicPartition, count: int, gap: bool, source: str) -> None:
        source += str(partition.partition)
        first = self.next[partition]
        if gap:
            self.held.note(source, first, first + 1, GAP)
            self.noted |= {(source, first): GAP, (source, first + 1): GAP}
            first += 2
        for offset in range(first, first + count):
            self.held.hand_out(source, partition, offset)
            self.expected[partition, offset] = source, None
        self.next[partition] = first + count

    @rule(data=st.data(), kind=st.sampled_from(AcknowledgeType))
    def acknowledge(self, data: st.DataObject, kind: AcknowledgeType) -> None:
        if not self.expected:
            return
        place = data.draw(st.sampled_from(sorted(self.expected)))
        self.held.acknowledge(*place, kind)
        self.expected[place] = self.expected[place][0], kind

    @rule(partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 30))
    def acknowledge_what_is_not_held(self, partition: TopicPartition, offset: int) -> None:
        if (partition, offset) not in self.expected:
            with pytest.raises(AcknowledgementError, match=f"offset {offset} of {partition}"):
                self.held.acknowledge(partition, offset, ACCEPT)

    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        """A lock has timed out, and the record came again."""
        if not self.expected:
            return
        place = data.draw(st.sampled_from(sorted(self.expected)))
        source = f"again{place[0].partition}"
        self.held.hand_out(source, *place)
        self.expected[place] = source, None

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if not self.expected:
            return
        place = data.draw(st.sampled_from(sorted(self.expected)))
        self.held.withdraw([place])
        del self.expected[place]

    @rule(data=st.data())
    def accept_all(self, data: st.DataObject) -> None:
        but = data.draw(st.sampled_from([None, *sorted(self.expected)]))
        self.held.accept_all(but)
        for place, (source, kind) in self.expected.items():
            if kind is None and place != but:
                self.expected[place] = source, ACCEPT

    @rule()
    def take(self) -> None:
        taken = {
            (source, offset): run.type
            for source, decided in self.held.take()
            for run in decided.in_runs()
            for offset in range(run.first, run.last + 1)
        }
        gone = {place: each for place, each in self.expected.items() if each[1] is not None}
        assert taken == self.noted | {(source, offset): kind for (_, offset), (source, kind) in gone.items()}
        self.noted.clear()
        for place in gone:
            del self.expected[place]

    @invariant()
    def unacknowledged(self) -> None:
        assert self.held.unacknowledged == sum(kind is None for _, kind in self.expected.values())


Bookkeeping.TestCase.settings = settings(max_examples=examples(20), stateful_step_count=30, deadline=None)
TestBookkeeping = Bookkeeping.TestCase


def test_runs_are_as_few_as_possible_and_in_order() -> None:
    acknowledgements = Acknowledgements()
    acknowledgements.types = {4: ACCEPT, 2: ACCEPT, 3: ACCEPT, 5: REJECT, 9: RELEASE}
    acknowledgements.runs = [AcknowledgedRun(6, 8, GAP), AcknowledgedRun(0, 1, ACCEPT)]
    assert acknowledgements.in_runs() == [(0, 4, ACCEPT), (5, 5, REJECT), (6, 8, GAP), (9, 9, RELEASE)]
    assert acknowledgements.count == 10
