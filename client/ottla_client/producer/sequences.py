"""Idempotence: sequence numbers, so that a batch that is sent again is not written again (KIP-98, KIP-360).

A producer gets an id and an epoch from the cluster, and numbers the records of each partition. The leader accepts a
batch only if its number follows the last one. It answers a repetition of one of the last five batches as the first
time, and anything else with OUT_OF_ORDER_SEQUENCE_NUMBER. So up to five batches can be in flight and stay in order
through any number of retries, as long as no number is missing.

A number is missing when a numbered batch fails for good or runs out of time. Whether the broker has that batch may be
unknown, and matters for the next one. So the next batch finds out::

    state       what happened                                            next
    ----------  -------------------------------------------------------  -----------------------------------
    CONTINUOUS  a numbered batch fails                                   GAP
    CONTINUOUS  the first outstanding batch is out of order              RESTART: the broker has lost records
    GAP         a batch behind the gap is acknowledged                   CONTINUOUS: there was no gap
    GAP         the first outstanding batch is out of order              RESTART: it is one
    GAP         nothing is outstanding                                   RESTART
    RESTART     nothing is in flight                                     CONTINUOUS, in a new epoch from 0

The first batch with a new id or epoch is sent alone: a broker that doesn't know the producer accepts any number, so if
it refused the first batch and accepted the second, the first would be stored after it. In transactions of version 2,
whose epochs are always new, brokers prevent that: they remember the lowest number that was not yet added.

In GAP no new batch is sent, in RESTART no batch at all. Batches outstanding at a restart were not written: the first
was refused for its number, and the others can't be written before it. So they can be sent in the new epoch without
duplicates. An idempotent producer raises its epoch by itself; after the last epoch it asks for a new id.
"""

from __future__ import annotations

from enum import Enum

from ..types import ProducerIdAndEpoch
from .batch import Batch

LAST_EPOCH = 32766
"""The last epoch for batches: brokers accept none above 32767, and reserve that for fencing."""
MAX_OUTSTANDING = 5
"""The number of batches per producer and partition in which a broker recognises repetitions."""


class ProducerIdHolder:
    """The producer id and epoch for new sequences; ``current`` is None while the cluster has to be asked for one."""

    __slots__ = ("current", "keeps_order")

    def __init__(self) -> None:
        self.current: ProducerIdAndEpoch | None = None
        self.keeps_order = False
        """Whether brokers refuse a batch whose predecessor in a new epoch they have refused."""

    def leave(self, old: ProducerIdAndEpoch) -> None:
        """A partition can't continue with ``old``: raise the epoch, if that hasn't happened."""
        if self.current == old:
            self.current = old._replace(epoch=old.epoch + 1) if old.epoch < LAST_EPOCH else None


class SequenceState(Enum):
    """The state of a partition's numbers; see the module."""

    CONTINUOUS = "continuous"
    GAP = "gap"
    RESTART = "restart"


class Sequences:
    """The sequence numbers of one partition's batches. No I/O."""

    __slots__ = ("_gap_at", "_holder", "_identity", "_known", "_next", "outstanding", "state")

    def __init__(self, holder: ProducerIdHolder) -> None:
        self._holder = holder
        self._identity: ProducerIdAndEpoch | None = None
        self._next = 0
        self._gap_at = -1
        self._known = False
        """Whether the broker has accepted a batch with the current id and epoch."""
        self.state = SequenceState.CONTINUOUS
        self.outstanding: list[Batch] = []
        """Batches with a number and no outcome, in the order of their numbers."""

    def may_send(self, batch: Batch) -> bool:
        """Whether ``batch``, the first that waits, may be sent now.

        A retry must be the first outstanding batch: any other would be out of order.
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
        """Number ``batch``, which may be sent, if it has no number. Returns the producer id and epoch for it."""
        if batch.sequence is None:
            # Another partition may have raised the epoch: use the new one when nothing is outstanding.
            if not self.outstanding and self._identity != self._holder.current:
                self._identity = self._holder.current
                self._next = 0
                self._known = self._holder.keeps_order
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
        if self.state is not SequenceState.CONTINUOUS:
            self.restart_if_due()

    def out_of_order(self, batch: Batch) -> None:
        """The broker lacks the batches before ``batch``, which will be sent again."""
        if self.outstanding[0] is batch:
            self.state = SequenceState.RESTART
        self.restart_if_due()

    def failed(self, batch: Batch) -> None:
        """``batch`` will not be sent again; the broker may have it."""
        assert batch.sequence is not None
        self.outstanding.remove(batch)
        if self.state is not SequenceState.RESTART:
            in_gap = self.state is SequenceState.GAP
            self._gap_at = max(self._gap_at, batch.sequence) if in_gap else batch.sequence
            self.state = SequenceState.GAP
        self.restart_if_due()

    def split(self, batch: Batch, parts: list[Batch]) -> None:
        """``parts`` replace ``batch`` and have its numbers."""
        at = self.outstanding.index(batch)
        self.outstanding[at : at + 1] = parts
        self.restart_if_due()

    def restart_if_due(self) -> None:
        """Restart, if that is due and no batch is in flight."""
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
