"""The records in flight of one share partition: a pure state machine, without clock, log or network.

The offsets from ``start`` (the share-partition start offset, SPSO) to before ``end`` (SPEO) are kept as runs that
follow each other without gaps: neighbours with the same state, delivery count and lock are one run. All below ``start``
is done with; all from ``end`` on has not been delivered. ``start`` moves past each prefix of runs in a terminal state.

::

    start                                             end
      | ACKNOWLEDGED | ACQUIRED by m1 | AVAILABLE, 1 | ...     (the first run would be dropped at once)

Kafka: ``SharePartition``, ``InFlightBatch``, ``InFlightState``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla_broker.coordinator.share.states import NEXT, OUTCOME, TERMINAL, Acknowledge, RecordState
from ottla_protocol.errors import ErrorCode, KafkaError


class Lock(Protocol):
    """A member's hold on the records that it has acquired, until a time; compared by identity."""

    @property
    def member_id(self) -> str: ...


L = TypeVar("L", bound=Lock)


class Batch(NamedTuple):
    """Offsets that share a state, first and last included: what is persisted and handed out."""

    first: int
    last: int
    state: RecordState
    deliveries: int


class Dropped(NamedTuple):
    """Offsets that no consumer has accepted and none gets again: rejected, or delivered too often."""

    first: int
    last: int
    rejected: bool


class Acknowledgement(NamedTuple):
    """A consumer's statement about the offsets from ``first`` to ``last``: one type for all, or one each."""

    first: int
    last: int
    types: Sequence[int]


@dataclass(eq=False, slots=True)
class Run(Generic[L]):
    """Offsets ``first`` to ``last`` with one state; ``lock`` while they are acquired."""

    first: int
    last: int
    state: RecordState
    count: int
    lock: L | None = None

    def __repr__(self) -> str:
        return f"<{self.first}-{self.last} {self.state.name} {self.count}>"


_first: Callable[[Run[L]], int] = attrgetter("first")


def check_acknowledgements(batches: Sequence[Acknowledgement], *, renews: bool) -> None:
    """Check what needs no state. Raises KafkaError: INVALID_REQUEST (``validateAcknowledgementBatches``).

    ``renews``: the request may renew locks.
    """
    previous = -1
    most = Acknowledge.RENEW if renews else Acknowledge.REJECT
    for first, last, types in batches:
        if first > last:
            raise _invalid(
                f"Invalid acknowledgement batch: its first offset {first} is after its last, {last}."
            )
        if first <= previous:
            raise _invalid(f"Acknowledgement batches overlap, or are out of order, at offset {first}.")
        if not types:
            raise _invalid(f"The acknowledgement batch {first}-{last} has no acknowledge type.")
        if len(types) not in (1, last - first + 1):
            raise _invalid(
                f"The acknowledgement batch {first}-{last} has {len(types)} acknowledge types: give one for all"
                " offsets, or one for each."
            )
        wrong = next((each for each in types if not 0 <= each <= most), None)
        if wrong is not None:
            raise _invalid(f"The acknowledgement batch {first}-{last} has the invalid type {wrong}.")
        previous = last


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


class InFlight(Generic[L]):
    """The runs of one share partition. Owned by the loop thread.

    Every method that changes what is persisted returns the changed batches; acquiring changes nothing of it. The time
    of a change depends on what it names, not on how many runs there are.

    Attributes:
        dropped: ranges dropped since the caller last cleared it.
    """

    __slots__ = ("_done", "_runs", "dropped", "end", "start")

    def __init__(self, start: int, batches: Iterable[Batch] = ()) -> None:
        """From the persisted state; offsets between its batches are available, and were never delivered."""
        self.start = self.end = start
        self.dropped: list[Dropped] = []
        self._runs: list[Run[L]] = []
        for batch in batches:
            if batch.last < self.end:
                continue
            first = max(batch.first, self.end)
            if first > self.end:
                self._runs.append(Run(self.end, first - 1, RecordState.AVAILABLE, 0))
            self._runs.append(Run(first, batch.last, batch.state, batch.deliveries))
            self.end = batch.last + 1
        self._count_done()
        self._advance()

    def __iter__(self) -> Iterator[Run[L]]:
        return iter(self._runs)

    @property
    def size(self) -> int:
        """The number of offsets in flight: what the most locks of a partition are counted by."""
        return self.end - self.start

    def __len__(self) -> int:
        return len(self._runs)

    def next_offset(self, most: int) -> int | None:
        """The first offset that may be acquired; None while ``most`` are in flight and none of them is available."""
        for run in self._runs:
            if run.state is RecordState.AVAILABLE:
                return run.first
        return self.end if self.size < most else None

    def available(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges within ``first`` to ``last`` that may be acquired, including what was never delivered."""
        found = []
        if first < self.end:
            for run in self._from(first):
                if run.first > last:
                    break
                if run.state is RecordState.AVAILABLE and run.last >= first:
                    found.append((max(run.first, first), min(run.last, last)))
        beyond = max(first, self.end)
        if beyond <= last:
            if found and found[-1][1] == beyond - 1:
                found[-1] = (found[-1][0], last)
            else:
                found.append((beyond, last))
        return found

    def acquired(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges within ``first`` to ``last`` that a member has."""
        found = []
        for run in self._from(first):
            if run.first > last:
                break
            if run.state is RecordState.ACQUIRED and run.last >= first:
                found.append((max(run.first, first), min(run.last, last)))
        return found

    def locked(self, chosen: Callable[[L], bool]) -> list[tuple[int, int]]:
        """The ranges that are acquired under the locks that ``chosen`` names."""
        return [(run.first, run.last) for run in self._runs if run.lock is not None and chosen(run.lock)]

    def acquire(self, ranges: Iterable[tuple[int, int]], lock: L) -> list[Batch]:
        """Acquire every available offset in ``ranges``, which rise; the batches have the new delivery counts.

        Offsets between ``end`` and a range become available, with no delivery.
        """
        acquired: list[Batch] = []
        for first, last in ranges:
            self._grow(last)
            for run in self._within(first, last):
                if run.state is RecordState.AVAILABLE:
                    run.count += 1
                    self._move(run, RecordState.ACQUIRED, lock)
                    acquired.append(Batch(run.first, run.last, run.state, run.count))
        return acquired

    def _grow(self, last: int) -> None:
        if last >= self.end:
            self._runs.append(Run(self.end, last, RecordState.AVAILABLE, 0))
            self.end = last + 1
            self._merge(len(self._runs) - 1, len(self._runs))

    def archive(self, first: int, last: int) -> list[Batch]:
        """Archive every available offset from ``first`` to ``last``: no consumer may have it, as it was aborted."""
        self._grow(last)
        changed = []
        for run in self._within(first, last):
            if run.state is RecordState.AVAILABLE:
                self._move(run, RecordState.ARCHIVED)
                changed.append(Batch(run.first, run.last, run.state, run.count))
        self._advance()
        return changed

    def check_held(self, batches: Iterable[Acknowledgement], member_id: str) -> None:
        """Check that the member has these offsets; those before ``start`` are done with, and ignored.

        Raises KafkaError: INVALID_RECORD_STATE for one that it hasn't acquired, or no longer has; INVALID_REQUEST for
        one past all that is in flight.
        """
        for first, last, _ in batches:
            self._check_held(max(first, self.start), last, member_id)

    def acknowledge(
        self,
        batches: Sequence[Acknowledgement],
        member_id: str,
        most_deliveries: int,
        renewed: L | None = None,
    ) -> list[Batch]:
        """Apply a member's acknowledgements, all or none; offsets before ``start`` are done with and ignored.

        ``renewed`` is the lock of the offsets whose type is RENEW. Raises KafkaError: see :meth:`check_held`.
        """
        self.check_held(batches, member_id)
        changed: list[Batch] = []
        start = self.start
        for first, last, types in batches:
            for low, high, kind in _spans(first, last, types):
                if high < start:
                    continue
                outcome = OUTCOME[Acknowledge(kind)]
                for run in self._within(max(low, start), high):
                    if outcome is None:
                        run.lock = renewed
                        continue
                    self._give_up(run, outcome, most_deliveries)
                    if kind == Acknowledge.REJECT:
                        self.dropped.append(Dropped(run.first, run.last, True))
                    changed.append(Batch(run.first, run.last, run.state, run.count))
        self._advance()
        return changed

    def release(self, lost: Callable[[L], bool], most_deliveries: int) -> list[Batch]:
        """Release what is acquired under the locks that ``lost`` names: timed out, or their member has gone."""
        return self.give_back(self.locked(lost), most_deliveries)

    def give_back(self, ranges: Iterable[tuple[int, int]], most_deliveries: int) -> list[Batch]:
        """Release acquired offsets; after their last delivery they are archived."""
        changed = []
        for first, last in ranges:
            for run in self._within(first, last):
                self._give_up(run, RecordState.AVAILABLE, most_deliveries)
                changed.append(Batch(run.first, run.last, run.state, run.count))
        self._advance()
        return changed

    def take_back(self, ranges: Iterable[tuple[int, int]]) -> list[Batch]:
        """Make acquired offsets available as if they hadn't been delivered."""
        changed = []
        for first, last in ranges:
            for run in self._within(first, last):
                self._move(run, RecordState.AVAILABLE)
                run.count -= 1
                changed.append(Batch(run.first, run.last, run.state, run.count))
        return changed

    def begin_at(self, offset: int) -> bool:
        """Move the start to ``offset``, where the log begins, if that is later. Return True if it moved."""
        if offset <= self.start:
            return False
        self.start = offset
        self.end = max(self.end, offset)
        self._runs = [run for run in self._runs if run.last >= offset]
        if self._runs and self._runs[0].first < offset:
            self._runs[0].first = offset
        self._count_done()
        self._advance()
        return True

    def end_at(self, offset: int) -> bool:
        """Forget what is from ``offset`` on: the log ends there. Return True if there was anything."""
        if offset >= self.end:
            return False
        self._runs = [run for run in self._runs if run.first < offset]
        if self._runs and self._runs[-1].last >= offset:
            self._runs[-1].last = offset - 1
        self.end = offset
        self.start = min(self.start, offset)
        self._count_done()
        return True

    def completed(self) -> int:
        """Return the number of offsets in flight that are in a terminal state."""
        return self._done

    def _count_done(self) -> None:
        self._done = sum(run.last - run.first + 1 for run in self._runs if run.state in TERMINAL)

    def _check_held(self, first: int, last: int, member_id: str) -> None:
        if first > last:
            return
        if last >= self.end:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The record at offset {last} cannot be acknowledged: no record from offset {self.end} on is acquired.",
            )
        for run in self._from(first):
            if run.first > last:
                return
            if run.lock is None or run.lock.member_id != member_id:
                raise _not_held(max(run.first, first))

    def _move(self, run: Run[L], state: RecordState, lock: L | None = None) -> None:
        if state not in NEXT[run.state]:
            raise RuntimeError(f"a record that is {run.state.name} cannot become {state.name}")
        run.state = state
        run.lock = lock
        if state in TERMINAL:
            self._done += run.last - run.first + 1

    def _give_up(self, run: Run[L], outcome: RecordState, most_deliveries: int) -> None:
        if outcome is RecordState.AVAILABLE and run.count >= most_deliveries:
            outcome = RecordState.ARCHIVED
            self.dropped.append(Dropped(run.first, run.last, False))
        self._move(run, outcome)

    def _from(self, first: int) -> Iterator[Run[L]]:
        """The runs from the one with ``first`` on."""
        return islice(self._runs, max(bisect_right(self._runs, first, key=_first) - 1, 0), None)

    def _within(self, first: int, last: int) -> Iterator[Run[L]]:
        """The runs of exactly the offsets from ``first`` to ``last``, for a change: cut before, and merged after it."""
        if first > last or not self._runs:
            return
        low = self._cut_at(first)
        high = self._cut_at(last + 1)
        yield from self._runs[low:high]
        self._merge(low, high)

    def _cut_at(self, offset: int) -> int:
        """Make ``offset`` the first one of a run; returns that run's index."""
        runs = self._runs
        if offset >= self.end:
            return len(runs)
        at = bisect_right(runs, offset, key=_first) - 1
        if at < 0:
            return 0
        run = runs[at]
        if run.first == offset:
            return at
        runs.insert(at + 1, Run(offset, run.last, run.state, run.count, run.lock))
        run.last = offset - 1
        return at + 1

    def _advance(self) -> None:
        runs = self._runs
        done = 0
        while done < len(runs) and runs[done].state in TERMINAL:
            self._done -= runs[done].last - runs[done].first + 1
            done += 1
        if done:
            self.start = runs[done - 1].last + 1
            del runs[:done]

    def _merge(self, low: int, high: int) -> None:
        """Join the runs from index ``low`` to before ``high``, and those beside them, where they are alike."""
        low, high = max(low - 1, 0), min(high + 1, len(self._runs))
        merged: list[Run[L]] = []
        for run in self._runs[low:high]:
            if merged:
                before = merged[-1]
                if before.state is run.state and before.count == run.count and before.lock is run.lock:
                    before.last = run.last
                    continue
            merged.append(run)
        if len(merged) < high - low:
            self._runs[low:high] = merged


def _not_held(offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD_STATE,
        f"The record at offset {offset} cannot be acknowledged: the member has not acquired it, or no longer has it.",
    )


def _spans(first: int, last: int, types: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The offsets of an acknowledgement, as spans of one type."""
    if len(types) == 1:
        yield first, last, types[0]
        return
    begin = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[begin]:
            yield first + begin, first + at - 1, types[begin]
            begin = at
