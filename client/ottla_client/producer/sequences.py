"""Idempotence: sequence numbers, so that a batch that is sent again is not written again (KIP-98, KIP-360).

A producer has an id and an epoch from the cluster, and numbers the records for each partition. The leader takes
a batch only if its number follows the one before, answers a repetition of one of the last five as it did the
first time, and says OUT_OF_ORDER_SEQUENCE_NUMBER to anything else. So up to five batches can be on their way,
and come to lie in order however often they are repeated, as long as no number is left out.

A number is left out when a batch that has one is given up: refused for good, or out of time. Whether the broker
has the batch nevertheless may be unknown, and matters to what follows it. So the next batch is asked first: ::

    state       what happened                                            next
    ----------  -------------------------------------------------------  -----------------------------------
    CONTINUOUS  a batch that has a number is given up                    GAP
    CONTINUOUS  the first outstanding batch is out of order              RESTART: the broker has lost records
    GAP         a batch behind the gap is acknowledged                   CONTINUOUS: there was no gap
    GAP         the first outstanding batch is out of order              RESTART: it is one
    GAP         nothing is outstanding                                   RESTART
    RESTART     nothing is on the wire                                   CONTINUOUS, in a new epoch from 0

The first batch under an identity goes alone: a broker that doesn't know the producer takes any number, so that if
the first batch were refused and the second taken, the first would come to lie behind it.

Nothing new is sent in GAP, nothing at all in RESTART. What is outstanding at a restart was not written: the
first was refused for its number, and none can be written before it. So it is sent under the new epoch without
being doubled. An idempotent producer raises its epoch by itself; after the last epoch it asks for a new id.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from .producer_id import ProducerIdAndEpoch, ProducerIdHolder

if TYPE_CHECKING:
    from .batch import Batch

MAX_OUTSTANDING = 5
"""The batches of a producer that a broker remembers by partition: more could not be told from repetitions."""


class SequenceState(Enum):
    """Of a partition's numbers; see the module."""

    CONTINUOUS = "continuous"
    GAP = "gap"
    RESTART = "restart"


class Sequences:
    """The numbers of one partition's batches. No I/O; belongs to whoever owns the partition's queue."""

    __slots__ = ("_gap_at", "_holder", "_identity", "_known", "_next", "outstanding", "state")

    def __init__(self, holder: ProducerIdHolder) -> None:
        self._holder = holder
        self._identity: ProducerIdAndEpoch | None = None
        self._next = 0
        self._gap_at = -1
        self._known = False
        """The broker has taken a batch under the identity."""
        self.state = SequenceState.CONTINUOUS
        self.outstanding: list[Batch] = []
        """What has a number and no final answer, in the order of the numbers."""

    def may_send(self, batch: Batch) -> bool:
        """Whether ``batch``, the first that waits, may be sent now.

        A repetition has to be the first outstanding one: those behind it would be out of order.
        """
        if self.state is SequenceState.RESTART:
            return False
        if batch.sequence is not None:
            return self.outstanding[0] is batch
        if self.state is SequenceState.GAP or len(self.outstanding) >= MAX_OUTSTANDING:
            return False
        if self.outstanding:
            return self._known
        return self._holder.current is not None

    def number(self, batch: Batch) -> ProducerIdAndEpoch:
        """Give ``batch``, which may be sent, its number if it has none. Returns the identity to send it under."""
        if batch.sequence is None:
            # Another partition's restart has raised the epoch: follow it as soon as nothing of the old is open.
            if not self.outstanding and self._identity != self._holder.current:
                self._identity = self._holder.current
                self._next = 0
                self._known = False
            batch.sequence = self._next
            self._next += batch.count
            self.outstanding.append(batch)
        assert self._identity is not None
        return self._identity

    def acknowledged(self, batch: Batch) -> None:
        """The broker has ``batch``."""
        assert batch.sequence is not None
        self.outstanding.remove(batch)
        self._known = True
        if self.state is SequenceState.GAP and batch.sequence > self._gap_at:
            self.state = SequenceState.CONTINUOUS
        self._restart_if_due()

    def out_of_order(self, batch: Batch) -> None:
        """The broker misses what comes before ``batch``, which is to be sent again."""
        if self.outstanding[0] is batch:
            self.state = SequenceState.RESTART
        self._restart_if_due()

    def given_up(self, batch: Batch) -> None:
        """``batch`` will not be sent again; the broker may have it or not."""
        assert batch.sequence is not None
        self.outstanding.remove(batch)
        if self.state is not SequenceState.RESTART:
            self._gap_at = (
                batch.sequence
                if self.state is SequenceState.CONTINUOUS
                else max(self._gap_at, batch.sequence)
            )
            self.state = SequenceState.GAP
        self._restart_if_due()

    def returned(self) -> None:
        """A batch has come off the wire, and is to be sent again."""
        self._restart_if_due()

    def split(self, batch: Batch, parts: list[Batch]) -> None:
        """``parts`` take the place of ``batch``, and its numbers."""
        at = self.outstanding.index(batch)
        self.outstanding[at : at + 1] = parts
        self._restart_if_due()

    def _restart_if_due(self) -> None:
        """Restart, if that is due and nothing is on the wire."""
        if self.state is SequenceState.CONTINUOUS or (self.state is SequenceState.GAP and self.outstanding):
            return
        if any(batch.in_flight for batch in self.outstanding):
            self.state = SequenceState.RESTART
            return
        for batch in self.outstanding:
            batch.sequence = None
        self.outstanding.clear()
        self.state = SequenceState.CONTINUOUS
        if self._identity is not None:
            self._holder.leave(self._identity)
            self._identity = None
