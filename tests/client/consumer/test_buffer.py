"""Handing out compared with a model: every record once and in order, whatever the application does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.client.consumer.chunks import batch, buffer, chunk, partition, values
from tests.support.depth import examples

from ottla_client.consumer.buffer import RUN
from ottla_client.consumer.positions import PartitionState

END = 60
NUMBERS = st.integers(0, 1)


class Handing(RuleBasedStateMachine):
    """Two partitions with the offsets 0 to END, each record once."""

    def __init__(self) -> None:
        super().__init__()
        self.held = buffer()
        self.states = [partition(0), partition(1)]
        self.expected = [0, 0]
        self.processed = [0, 0]
        self.run: Iterator[Any] = iter(())
        self.last: tuple[int, int] | None = None
        """The last record that was taken one by one, which is being processed."""

    def _take_over(self, records: Iterable[Any]) -> None:
        for record in records:
            assert not self.states[record.partition].paused
            assert record.offset == int(record.value) == self.expected[record.partition]
            self.expected[record.partition] += 1

    def _asked(self) -> None:
        self.held.mark_processed()
        self.processed = list(self.expected)
        self.last = None

    @rule(number=NUMBERS, sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4))
    def fetched(self, number: int, sizes: list[int]) -> None:
        state = self.states[number]
        batches = []
        offset = state.fetch_offset
        for size in sizes:
            size = min(size, END - offset)
            if size > 0:
                batches.append(batch(offset, size))
                offset += size
        if batches:
            self.held.add(chunk(state, *batches, offset=state.fetch_offset))
            state.fetch_offset = offset

    @rule(count=st.integers(1, 12))
    def poll(self, count: int) -> None:
        self._asked()
        lists = self.held.take(count)
        assert sum(rows.count for rows in lists) <= count
        for rows in lists:
            assert rows.count
            self._take_over(rows.records())

    @rule(number=NUMBERS, count=st.integers(1, 12))
    def poll_one_partition(self, number: int, count: int) -> None:
        self._asked()
        for rows in self.held.take(count, {self.states[number].partition}):
            assert rows.partition == number
            self._take_over(rows.records())

    @rule(count=st.integers(1, 12))
    def poll_tables(self, count: int) -> None:
        self._asked()
        parts = self.held.take_parts(count)
        assert sum(part.records for part in parts) <= count
        for part in parts:
            for offset in part.columns.offsets[part.start : part.stop]:
                assert offset == self.expected[part.partition]
                self.expected[part.partition] += 1

    @rule(count=st.integers(1, 12))
    def iterate(self, count: int) -> None:
        """Like ``async for``: records from the iterator, and a new iterator when it ends."""
        for _ in range(count):
            record = next(self.run, None)
            if record is None:
                self._asked()
                run = self.held.iterate()
                if run is None:
                    return
                self.run = run
                record = next(run)
            if self.last is not None and self.last[0] == record.partition:
                self.processed[record.partition] = record.offset
            self.last = (record.partition, record.offset)
            self._take_over([record])

    @rule(number=NUMBERS, offset=st.integers(0, END))
    def seek(self, number: int, offset: int) -> None:
        state = self.states[number]
        if not self.held.skip_to(state, offset):
            self.held.drop(state)
            state.seek(offset)
        self.expected[number] = self.processed[number] = offset

    @rule(number=NUMBERS)
    def drop(self, number: int) -> None:
        """As at a change of the leader."""
        self.held.drop(self.states[number])

    @rule(number=NUMBERS)
    def pause_or_resume(self, number: int) -> None:
        state = self.states[number]
        if not state.paused:
            self.held.halt(state)
        state.paused = not state.paused

    @rule()
    def halt(self) -> None:
        """As when a rebalance waits."""
        self.held.halt()
        assert next(self.run, None) is None

    @precondition(lambda self: self.expected == [END, END])
    @rule()
    def nothing_is_left(self) -> None:
        assert self.held.take(99) == []

    @invariant()
    def positions_are_behind_what_was_handed_out(self) -> None:
        self.held.sync()
        assert [state.position for state in self.states] == self.expected

    @invariant()
    def nothing_is_processed_that_may_be_at_work(self) -> None:
        for number, state in enumerate(self.states):
            processed = self.held.processed_offset(state)
            assert processed is not None
            assert processed <= self.expected[number]
            if self.last is not None and self.last[0] == number:
                assert processed <= max(self.last[1], self.processed[number])


TestHanding = Handing.TestCase
TestHanding.settings = hypothesis_settings(max_examples=examples(30), stateful_step_count=40, deadline=None)


def test_there_is_room_when_enough_was_handed_out() -> None:
    calls: list[PartitionState] = []
    state = partition()
    parts = [batch(base, 10) for base in range(0, 3 * RUN, 10)]
    held = buffer(room=sum(map(len, parts)) // 2, on_room=calls.append)
    held.add(chunk(state, *parts))
    taken = 0
    while not calls:
        taken += len(values(held.take(10)))
    assert RUN <= taken <= 2 * RUN
    while values(held.take(10)):
        pass
    assert len(calls) == 2  # and once more when it is empty
    assert state.buffered == 0


def test_what_was_polled_is_processed_by_the_next_poll() -> None:
    state = partition()
    held = buffer()
    held.add(chunk(state, batch(0, 10)))
    held.mark_processed()
    held.take(4)
    assert held.processed_offset(state) == 0
    assert held.unprocessed
    held.mark_processed()
    assert held.processed_offset(state) == 4
    assert not held.unprocessed


def test_one_by_one_asking_for_the_next_processes_the_one_before() -> None:
    state = partition()
    held = buffer()
    held.add(chunk(state, batch(0, 10)))
    held.mark_processed()
    run = held.iterate()
    assert run is not None
    for offset in range(10):
        assert held.processed_offset(state) == max(0, offset - 1)
        assert next(run).offset == offset
    assert held.processed_offset(state) == 9
    held.mark_processed()
    assert held.processed_offset(state) == 10


def test_records_that_were_polled_stay_as_they_are() -> None:
    """Ending an iterator doesn't change lists that the application has."""
    state = partition()
    held = buffer()
    held.add(chunk(state, batch(0, 10), batch(10, 10)))
    first, second = held.take(5), held.take(10)
    held.halt()
    held.drop(state)
    assert values(first) == [0, 1, 2, 3, 4]
    assert values(second) == list(range(5, 15))


def test_batches_without_what_is_sought_are_passed_over() -> None:
    for needle in (b"35", b"3", b"x", b"6"):
        for count in (1, 10, 1000):
            state, held = partition(), buffer()
            for base in (0, 35):
                held.add(chunk(state, *(batch(base + each, 7) for each in range(0, 35, 7)), offset=base))
            wanted = [each for base in range(0, 70, 7) for each in range(base, base + 7) if has(base, needle)]
            seen: list[int] = []
            before = -1
            while before != len(seen) + held.left_out:
                before = len(seen) + held.left_out
                for part in held.take_parts(count, needle):
                    seen += part.columns.offsets[part.start : part.stop]
            assert seen == wanted
            assert held.left_out == 70 - len(wanted)
            assert (state.position, state.buffered) == (70, 0)


def has(base: int, needle: bytes) -> bool:
    return any(needle in b"%d" % each for each in range(base, base + 7))
