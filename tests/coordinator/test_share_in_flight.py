"""The records in flight of a share partition, against a model that keeps each record by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla_broker.coordinator.share.in_flight import (
    Acknowledgement,
    Batch,
    InFlight,
    check_acknowledgements,
)
from ottla_broker.coordinator.share.state_batches import merged, overlay, trim
from ottla_broker.coordinator.share.states import TERMINAL, Acknowledge, RecordState
from ottla_protocol.errors import ErrorCode, KafkaError

LIMIT = 3
MOST = 12
END = 40


@dataclass(eq=False)
class Held:
    """A lock; eq=False compares by identity."""

    member_id: str


@dataclass
class Model:
    """Each record's state, deliveries and lock. The log has offsets 0 to ``END``."""

    records: dict[int, list[object]] = field(default_factory=dict)

    def state(self, offset: int) -> RecordState:
        found = self.records.get(offset)
        return RecordState.AVAILABLE if found is None else found[0]  # type: ignore[return-value]

    @property
    def start(self) -> int:
        return next((offset for offset in range(END + 1) if self.state(offset) not in TERMINAL), END + 1)


def apply_persisted(batches: list[Batch], start: int, changes: list[Batch]) -> None:
    overlay(batches, changes)
    trim(batches, start)


steps = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "acknowledge", "expire", "leave", "reload", "retain"]),
        st.sampled_from(["m1", "m2"]),
        st.integers(0, END),
        st.integers(1, 6),
        st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=6),
    ),
    max_size=40,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_each_record_is_delivered_until_it_is_done_with_and_to_one_member_at_a_time(
    actions: list[tuple[str, str, int, int, list[int]]],
) -> None:
    table: InFlight[Held] = InFlight(0)
    model = Model()
    locks: list[Held] = []
    persisted: list[Batch] = []

    def give_up(offset: int, outcome: RecordState) -> None:
        found = model.records[offset]
        deliveries = found[1]
        assert isinstance(deliveries, int)
        if outcome is RecordState.AVAILABLE and deliveries >= LIMIT:
            outcome = RecordState.ARCHIVED
        found[0], found[2] = outcome, None

    for action, member, offset, size, types in actions:
        changed: list[Batch] = []
        if action == "acquire":
            first = table.next_offset(MOST)
            if first is None or first > END:
                assert table.size >= MOST or table.end > END
                continue
            assert model.state(first) is RecordState.AVAILABLE
            last = min(first + size, END, table.start + MOST - 1)
            lock = Held(member)
            locks.append(lock)
            got = table.acquire(table.available(first, last), lock)
            for batch in got:
                for each in range(batch.first, batch.last + 1):
                    assert model.state(each) is RecordState.AVAILABLE
                    before = model.records.get(each, [None, 0, None])[1]
                    assert isinstance(before, int)
                    model.records[each] = [RecordState.ACQUIRED, before + 1, lock]
                    assert batch.deliveries == before + 1 <= LIMIT
            assert got
        elif action == "acknowledge":
            if len(types) not in (1, size):
                types = types[:1]
            asked = Acknowledgement(offset, offset + size - 1, types)
            held = [
                each
                for each in range(max(offset, table.start), offset + size)
                if (lock := model.records.get(each, [None, 0, None])[2]) is None
                or not isinstance(lock, Held)
                or lock.member_id != member
            ]
            if held:
                with pytest.raises(KafkaError) as error:
                    table.acknowledge([asked], member, LIMIT)
                past = offset + size > table.end
                expected = ErrorCode.INVALID_REQUEST if past else ErrorCode.INVALID_RECORD_STATE
                assert error.value.code is expected
            else:
                start = table.start
                changed = table.acknowledge([asked], member, LIMIT)
                for each in range(max(offset, start), offset + size):
                    kind = types[0] if len(types) == 1 else types[each - offset]
                    give_up(
                        each,
                        {
                            Acknowledge.ACCEPT: RecordState.ACKNOWLEDGED,
                            Acknowledge.RELEASE: RecordState.AVAILABLE,
                        }.get(Acknowledge(kind), RecordState.ARCHIVED),
                    )
        elif action in ("expire", "leave"):
            lost = [lock for lock in locks if lock.member_id == member]
            if action == "expire":
                lost = lost[:1]
            changed = table.release(lambda lock, lost=lost: lock in lost, LIMIT)  # type: ignore[misc]
            for each, found in model.records.items():
                if found[2] in lost and found[2] is not None:
                    give_up(each, RecordState.AVAILABLE)
        elif action == "retain":
            start = min(table.start + size, END)
            if table.begin_at(start):
                for each in range(start):
                    if model.state(each) not in TERMINAL:
                        model.records[each] = [RecordState.ARCHIVED, 0, None]
            apply_persisted(persisted, table.start, [])
        elif action == "reload":
            # Another leader: acquisitions are lost, and so are their deliveries.
            kept = InFlight[Held](table.start, merged(persisted))
            for found in model.records.values():
                if found[0] is RecordState.ACQUIRED:
                    deliveries = found[1]
                    assert isinstance(deliveries, int)
                    found[:] = [RecordState.AVAILABLE, deliveries - 1, None]
            table, locks = kept, []
        apply_persisted(persisted, table.start, changed)
        assert table.start == model.start
        runs = list(table)
        assert [run.first for run in runs] == [table.start, *(run.last + 1 for run in runs)][: len(runs)]
        for run in runs:
            for each in range(run.first, run.last + 1):
                expected = model.records.get(each, [RecordState.AVAILABLE, 0, None])
                assert [run.state, run.lock] == [expected[0], expected[2]]
                assert run.count == expected[1] or run.state in TERMINAL


@pytest.mark.parametrize(
    "batches",
    [
        [(5, 4, [1])],
        [(0, 4, [1]), (4, 6, [1])],
        [(5, 6, [1]), (0, 1, [1])],
        [(0, 4, [])],
        [(0, 4, [1, 1])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [4])],
    ],
)
def test_bad_acknowledgements_are_refused(batches: list[tuple[int, int, list[int]]]) -> None:
    with pytest.raises(KafkaError) as error:
        check_acknowledgements([Acknowledgement(*each) for each in batches], renews=False)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_a_renewed_lock_takes_over() -> None:
    table: InFlight[Held] = InFlight(0)
    first, second = Held("m"), Held("m")
    table.acquire([(0, 9)], first)
    check_acknowledgements([Acknowledgement(2, 3, [4])], renews=True)
    assert table.acknowledge([Acknowledgement(2, 3, [4])], "m", LIMIT, second) == []
    table.release(lambda lock: lock is first, LIMIT)
    assert [(run.first, run.last, run.state) for run in table] == [
        (0, 1, RecordState.AVAILABLE),
        (2, 3, RecordState.ACQUIRED),
        (4, 9, RecordState.AVAILABLE),
    ]


def test_a_persisted_state_with_gaps_is_filled_with_available_records() -> None:
    table: InFlight[Held] = InFlight(
        5, [Batch(8, 9, RecordState.ACKNOWLEDGED, 1), Batch(12, 12, RecordState.AVAILABLE, 2)]
    )
    assert [(run.first, run.last, run.state.name, run.count) for run in table] == [
        (5, 7, "AVAILABLE", 0),
        (8, 9, "ACKNOWLEDGED", 1),
        (10, 11, "AVAILABLE", 0),
        (12, 12, "AVAILABLE", 2),
    ]
    assert table.end_at(9)
    assert (table.end, table.size) == (9, 4)
