"""The producers whose transactions the coordinator is being asked about, or has confirmed (KIP-890).

The first transactional batch of a producer is appended only if its coordinator knows that the partition belongs to the
transaction. Otherwise a batch that arrives late, after its transaction's marker, would begin a transaction that no one
ends. A produce request takes a guard before it asks, and shows it when it appends: a marker in between makes it void
(Kafka's ``VerificationGuard`` and ``VerificationStateEntry``).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MAX_STATES: Final = 10_000
"""How many producers a partition remembers here; beyond that, the oldest must be verified again."""


class VerificationGuard:
    """Compared by identity only."""

    __slots__ = ()


UNVERIFIED: Final = VerificationGuard()
"""For a batch of a request with a transactional id that no coordinator was asked about."""


class VerificationState:
    """One producer that has to be verified.

    Attributes:
        lowest_sequence: of all its batches under ``epoch`` so far, or the one that its first batch must have. A batch
            above it is refused: if an earlier one was put off because the coordinator did not answer, this one must
            not get ahead of it.
    """

    __slots__ = ("created_ms", "epoch", "guard", "lowest_sequence")

    def __init__(self, created_ms: int, sequence: int, epoch: int) -> None:
        self.guard = VerificationGuard()
        self.created_ms = created_ms
        self.lowest_sequence = sequence
        self.epoch = epoch

    def seen(self, sequence: int, epoch: int) -> None:
        """A batch with these numbers has come."""
        if epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence
        elif epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence


class Verifications:
    """The producers of one partition that have to be verified. Owned by the log's thread."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: OrderedDict[int, VerificationState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def find(self, producer_id: int) -> VerificationState | None:
        """The state of a producer that has one."""
        return self._states.get(producer_id)

    def begin(self, producer_id: int, sequence: int, epoch: int, now_ms: int) -> VerificationGuard:
        """The guard under which a batch of the producer is verified."""
        state = self._states.get(producer_id)
        if state is None:
            while len(self._states) >= MAX_STATES:
                self._states.popitem(last=False)
            state = self._states[producer_id] = VerificationState(now_ms, sequence, epoch)
        state.seen(sequence, epoch)
        return state.guard

    def is_guarded(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether ``guard`` still holds for the producer."""
        state = self._states.get(producer_id)
        return state is not None and state.guard is guard

    def end(self, producer_id: int) -> None:
        """The producer's transaction has begun or ended here: guards are void."""
        self._states.pop(producer_id, None)

    def remove_older(self, created_ms: int) -> None:
        """Forget producers that were not seen since ``created_ms``, the oldest first."""
        states = self._states
        while states and next(iter(states.values())).created_ms <= created_ms:
            states.popitem(last=False)

    def clear(self) -> None:
        self._states.clear()
