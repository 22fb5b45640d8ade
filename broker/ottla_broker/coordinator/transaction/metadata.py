"""The state of a transactional id, and how events change it: Kafka's ``TransactionMetadata``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    Event,
    TransactionState,
    TransactionStateError,
    state_after,
)

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1

LAST_EPOCH: Final = 32_766
"""The last epoch that a producer gets. One more is left, to fence that producer."""

TRANSACTION_VERSION_2: Final = 2
"""The version of clients whose epoch grows with every transaction (KIP-890)."""

TopicPartition = tuple[str, int]


_ENDED: Final = PREPARED | {COMPLETE_COMMIT, COMPLETE_ABORT}


class Producer(NamedTuple):
    """A producer id and its epoch: the producer that a client claims to be."""

    id: int
    epoch: int


class TransactionMetadata(NamedTuple):
    """The state of a transactional id; its log has the last one of each. Times are wall-clock times in ms.

    Events make another one (``initialized``, ``added``, …). They raise TransactionStateError where the table of states
    has no such transition.
    """

    producer_id: int
    producer_epoch: int = NO_EPOCH
    """-1 only before the log has the first record of the id."""
    previous_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    """The epoch before a producer raised its own: a repeated request still names it (KIP-360). The log lacks it."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id once the transaction that has ended is complete, because that raised the last epoch of this one."""
    client_version: int = 0
    """:data:`TRANSACTION_VERSION_2` if the last event was of a client with that version, otherwise 0."""
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """The transaction's partitions; without those that have their markers, once it has ended."""
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch for a producer."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def commits(self) -> bool:
        """Whether the transaction that has ended was committed."""
        return self.state is PREPARE_COMMIT

    @property
    def next_producer(self) -> Producer:
        """The producer that begins the next transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return Producer(self.next_producer_id, 0)
        return Producer(self.producer_id, self.producer_epoch)

    def end_ms(self) -> int:
        """Return when the transaction's time is up."""
        return self.start_ms + self.timeout_ms

    # InitProducerId

    def refuses(self, expected: Producer | None) -> bool:
        """Whether a newer producer has replaced the one that wants to keep its id.

        The epoch isn't compared here, except for a producer that got another id because its epochs were used up, and
        that asks again because it hasn't seen the answer.
        """
        return not (
            expected is None
            or self.producer_epoch == NO_EPOCH
            or expected.id == self.producer_id
            or (expected.id == self.previous_producer_id and expected.epoch >= LAST_EPOCH)
        )

    def needs_producer_id(self, expected: Producer | None) -> bool:
        """Whether the next producer must get another id, because the epochs of this one are used up."""
        return self.is_exhausted and (expected is None or expected.epoch == self.producer_epoch)

    def initialized(
        self, expected: Producer | None, timeout_ms: int, now_ms: int, new_id: int | None = None
    ) -> TransactionMetadata | None:
        """For the next producer: with a higher epoch, or with ``new_id`` and epoch 0. None: ``expected`` is fenced."""
        if new_id is not None:
            last = self.producer_epoch if expected is not None else NO_EPOCH
            return self._emptied(new_id, 0, last, timeout_ms, now_ms)
        if expected is None:
            # The producer before can't continue: there is no last epoch for it to name.
            epoch, last = self.producer_epoch + 1, NO_EPOCH
        elif self.producer_epoch == NO_EPOCH or expected.epoch == self.producer_epoch:
            epoch, last = self.producer_epoch + 1, self.producer_epoch
        elif expected.epoch == self.last_producer_epoch:
            # The answer to an earlier request got lost. No other producer has come since: it would have cleared this.
            epoch, last = self.producer_epoch, self.last_producer_epoch
        else:
            return None
        return self._emptied(self.producer_id, epoch, last, timeout_ms, now_ms)

    def _emptied(
        self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        return self._replace(
            state=state_after(self.state, Event.INIT),
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=self.producer_id,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME,
            update_ms=now_ms,
        )

    # The transaction

    def check_producer(self, producer: Producer) -> int:
        """The error code for a producer that isn't the current one.

        Only a coordinator gives out epochs. So for a newer one this broker isn't the coordinator any more, but hasn't
        noticed yet, as after it was frozen. Kafka answers PRODUCER_FENCED, which ends the current producer.
        """
        if producer.id != self.producer_id:
            return codes.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch > self.producer_epoch:
            return codes.NOT_COORDINATOR
        return codes.NONE if producer.epoch == self.producer_epoch else codes.PRODUCER_FENCED

    def was_ended_by(self, producer: Producer) -> bool:
        """Whether an EndTxn of ``producer`` has raised the epoch to the current one: it is repeated now."""
        if self.client_version != TRANSACTION_VERSION_2 or self.state not in _ENDED:
            return False
        if producer.id == self.producer_id:
            return producer.epoch + 1 == self.producer_epoch
        rotated = self.producer_epoch == 0 and producer.id == self.previous_producer_id
        return rotated and producer.epoch == LAST_EPOCH

    def added(
        self, partitions: Iterable[TopicPartition], now_ms: int, client_version: int = 0
    ) -> TransactionMetadata:
        """With more partitions; the first ones begin a transaction."""
        begins = self.state is not ONGOING
        return self._replace(
            state=state_after(self.state, Event.ADD),
            partitions=self.partitions.union(partitions),
            start_ms=now_ms if begins else self.start_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def ended(self, commit: bool, now_ms: int) -> TransactionMetadata:
        """The producer has decided."""
        event = Event.COMMIT if commit else Event.ABORT
        return self._replace(state=state_after(self.state, event), update_ms=now_ms, client_version=0)

    def ended_with_bump(
        self, commit: bool, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionMetadata:
        """The producer has decided, and continues with a higher epoch, or with another id if this one is exhausted."""
        return self.ended(commit, now_ms)._replace(
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            next_producer_id=next_producer_id,
            client_version=TRANSACTION_VERSION_2,
            start_ms=self.start_ms if self.state is ONGOING else now_ms,
        )

    def fenced(self, now_ms: int) -> TransactionMetadata:
        """Aborted, with a higher epoch: the markers keep late batches out.

        No producer gets the epoch, except one of version 2 that aborts, too: it learns the epoch as if it had been
        first. After the last epoch it can't, and gets another id.
        """
        continues = self.client_version == TRANSACTION_VERSION_2 and not self.is_exhausted
        return self._replace(
            state=state_after(self.state, Event.FENCE, Event.ABORT),
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch if continues else NO_EPOCH,
            client_version=self.client_version if continues else 0,
            update_ms=now_ms,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """All partitions have their markers."""
        successor = self._replace(
            state=state_after(self.state, Event.MARKED), partitions=frozenset(), update_ms=now_ms
        )
        if self.next_producer_id == NO_PRODUCER_ID:
            return successor
        return successor._replace(
            producer_id=self.next_producer_id,
            producer_epoch=0,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    def expired(self) -> TransactionMetadata:
        """Not used for too long."""
        return self._replace(state=state_after(self.state, Event.EXPIRE), partitions=frozenset())

    def check_successor(self, successor: TransactionMetadata) -> None:
        """Raise TransactionStateError unless ``successor`` may come after this: no epoch and no partition is lost."""
        grows = successor.producer_epoch - self.producer_epoch in (0, 1)
        if successor.producer_id != self.producer_id:
            rotates = self.state is not ONGOING and self.state not in PREPARED
            grows = successor.producer_epoch == 0 and (
                rotates or successor.producer_id == self.next_producer_id
            )
        keeps = not {successor.state, self.state} <= {ONGOING, *PREPARED} or (
            self.partitions <= successor.partitions
        )
        if not (grows and keeps):
            raise TransactionStateError(f"{successor} can't follow {self}")
