"""One producer's transactions: which request comes next, and what its answer changes. No I/O, no clock.

The application's calls and failed batches change the state; ``next`` gives the one request that is due; ``answered``
takes its response. Requests go out one at a time, in this order: the partitions of waiting batches, offsets, the end.
A transaction ends only after every batch that was sent has an outcome (``drained``): until then it is unknown which
sequence number comes next. After an abort the producer raises its epoch (KIP-360): sequence numbers begin again, and
brokers refuse what is still under way. On a broker that is too old for that, a lost sequence number stops the producer.

In a transaction of version 2 (KIP-890) leaders and group coordinators add what is written, and the answer to EndTxn
has the epoch of the next transaction. A cluster may change the version between two transactions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla_protocol.errors import ErrorCode, error_code

from ..errors import (
    BrokerError,
    ClientError,
    ConfigurationError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedApiError,
)
from ..group.offsets import commit_error
from ..requests.group_offsets import commit_codes
from ..requests.transactions import (
    add_offsets_request,
    add_partitions_codes,
    add_partitions_request,
    commit_offsets_request,
    end_request,
    init_request,
)
from ..types import ConsumerGroupMetadata, OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from .sequences import ProducerIdHolder
from .transaction_state import REACTIONS, TRANSITIONS, Reaction, Step, TransactionState, worst

if TYPE_CHECKING:
    from ottla_protocol.schema import Message

_OPEN = (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING)


class TransactionalIds(ProducerIdHolder):
    """A producer id whose epoch only the coordinator raises."""

    def leave(self, old: ProducerIdAndEpoch) -> None:
        """A partition can't continue with ``old``: no sequence begins until the coordinator raises the epoch."""
        if self.current == old:
            self.current = None


@dataclass(eq=False, slots=True)
class OffsetsToCommit:
    """Offsets of a group on their way into the transaction."""

    group: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    done: bool = False
    error: Exception | None = None


@dataclass(eq=False, slots=True)
class Ask:
    """A request that is due."""

    step: Step
    request: Message
    partitions: frozenset[TopicPartition] = frozenset()
    """Those that ADD_PARTITIONS adds."""
    offsets: OffsetsToCommit | None = None
    """Those that ADD_OFFSETS and COMMIT_OFFSETS are for."""
    commit: bool = False
    """Whether END commits."""
    raises_epoch: bool = False
    """Whether INIT_PRODUCER_ID asks for the next epoch."""

    @property
    def group_id(self) -> str | None:
        """The group whose coordinator gets the request; None for the transaction's coordinator."""
        return self.offsets.group.group_id if self.step is Step.COMMIT_OFFSETS and self.offsets else None


class TransactionManager:
    """The state of a transactional producer. Belongs to one event loop."""

    def __init__(self, transactional_id: str, timeout_ms: int, changed: Callable[[], None]) -> None:
        """``changed`` is called after each change; it must not call back."""
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.state = TransactionState.UNINITIALIZED
        self.is_open = False
        """Whether records and offsets may be added to the transaction: asked for each record."""
        self.error: Exception | None = None
        """The error by which the transaction has failed, or the producer can't continue."""
        self.identity: ProducerIdAndEpoch | None = None
        self.ids = TransactionalIds()
        self.is_version_2 = False
        """Whether the transaction is one of version 2."""
        self.partitions: set[TopicPartition] = set()
        """Those that the coordinator has added to the transaction."""
        self._changed = changed
        self._to_add: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._offsets: deque[OffsetsToCommit] = deque()
        self._began = False
        """Whether the coordinator has a transaction to end."""
        self._may_have_begun = False
        """Whether a request that begins one was sent; its answer may have been lost."""
        self._drained = False
        self._raise_epoch = False
        self._epoch_is_lost = False
        """Whether sequence numbers can't continue without a new epoch."""
        self._forgotten = False
        """The coordinator doesn't know the producer any more."""
        self._commits_sent = 0
        self.block = "async with"
        """What errors say opens a transaction: ``with`` for code without asyncio."""

    def __str__(self) -> str:
        return f"transactional id {self.transactional_id!r}"

    # The application's calls.

    def initialize(self) -> None:
        """Ask for a producer id; fences older producers with the same transactional id."""
        self._become(TransactionState.INITIALIZING)

    def begin(self, *, version_2: bool = False) -> None:
        """Begin a transaction. Raises TransactionStateError, and the reason for a producer that can't continue."""
        self._check_not_fatal()
        if self.state is not TransactionState.READY:
            raise TransactionStateError(f"{self}: {_NOT_READY[self.state]}")
        self.is_version_2 = self.ids.keeps_order = version_2
        self._become(TransactionState.IN_TRANSACTION)

    def check_sending(self) -> None:
        """Raise unless records and offsets may be added to the transaction.

        Raises TransactionAbortedError for one that has failed, TransactionStateError if there is none.
        """
        if self.is_open:
            return
        self._check_not_fatal()
        self._check_not_failed()
        raise self.not_open()

    def not_open(self) -> TransactionStateError:
        """The error for records and offsets while no transaction is open."""
        return TransactionStateError(f"{self}: {_NOT_OPEN[self.state].format(self.block)}")

    def add_offsets(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> OffsetsToCommit:
        """Commit offsets with the transaction. The result has the outcome."""
        self.check_sending()
        added = OffsetsToCommit(group, offsets)
        self._offsets.append(added)
        self._changed()
        return added

    def commit(self) -> None:
        """Begin to commit; nothing happens if that is under way.

        Raises TransactionAbortedError if the transaction has failed, TransactionStateError if there is none.
        """
        if self.state is TransactionState.COMMITTING:
            return
        self.check_sending()
        self._drained = False
        self._commits_sent = 0
        self._become(TransactionState.COMMITTING)

    def abort(self) -> None:
        """Begin to abort; nothing happens if that is under way. Raises TransactionStateError."""
        if self.state in (TransactionState.ABORTING, TransactionState.INITIALIZING):
            return
        self._check_not_fatal()
        if self.state is TransactionState.COMMITTING:
            raise TransactionStateError(
                f"{self}: the transaction may have been committed, so it can't be aborted; call commit again to learn"
                " the outcome"
            )
        if self.state not in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR):
            raise TransactionStateError(f"{self}: there is no transaction to abort")
        self._forget_requests(self.aborted())
        self._drained = False
        self._raise_epoch |= self._may_have_begun and not self.is_version_2
        self._become(TransactionState.ABORTING)

    def aborted(self) -> Exception:
        """The error for records and offsets that are part of an aborted transaction."""
        error = TransactionAbortedError(
            f"{self}: the transaction was aborted" + (f": {self.error}" if self.error is not None else "")
        )
        error.__cause__ = self.error
        return error

    # The sender's.

    def add_partition(self, partition: TopicPartition) -> None:
        """A batch for a partition waits, which is to become part of the transaction."""
        if self.is_version_2:
            if self.state in _OPEN:
                self.partitions.add(partition)
                self._began = self._may_have_begun = True
        elif self.state in _OPEN and partition not in self._to_add:
            self._to_add.add(partition)
            self._changed()

    @property
    def is_ready(self) -> bool:
        """Whether a transaction may begin."""
        return self.state is TransactionState.READY

    @property
    def adds_partitions(self) -> bool:
        """Whether the next request adds partitions."""
        return bool(self._to_add)

    def batch_failed(self, error: Exception, *, numbered: bool) -> None:
        """A batch won't be delivered. ``numbered``: its sequence number is lost, too."""
        self.fail(error, epoch_is_lost=numbered)

    def not_sent(self, error: Exception) -> None:
        """A record that the application takes for sent can't be buffered: the transaction must not be committed.

        Once EndTxn is on its way, the coordinator decides: the record came after the commit.
        """
        if not (self.state is TransactionState.COMMITTING and self._commits_sent):
            self.fail(error)

    def drained(self) -> None:
        """Every batch of the transaction that is being ended has an outcome."""
        self._drained = True
        self._end_if_nothing_is_left()
        self._changed()

    def fail(self, error: Exception, *, epoch_is_lost: bool = False, forgotten: bool = False) -> None:
        """The transaction can't be committed any more."""
        if self.state in (*_OPEN, TransactionState.ABORTABLE_ERROR, TransactionState.ABORTING):
            self._raise_epoch |= not self.is_version_2 or forgotten
            self._epoch_is_lost |= epoch_is_lost
            self._forgotten |= forgotten
        if self.state in _OPEN:
            self.error = error
            self._forget_requests(error)
            self._become(TransactionState.ABORTABLE_ERROR)

    def stop(self, error: Exception) -> None:
        """The producer can't continue."""
        if self.state is not TransactionState.FATAL_ERROR:
            self.error = error
            self.ids.current = None
            self._forget_requests(error)
            self._become(TransactionState.FATAL_ERROR)

    # The requests.

    def next(self) -> Ask | None:
        """The request that is due, if there is one. The same one until it is answered or the state changes."""
        transactional_id, identity = self.transactional_id, self.identity
        if self.state is TransactionState.INITIALIZING:
            current = identity if self._raise_epoch else None
            request = init_request(transactional_id, self.timeout_ms, current)
            return Ask(Step.INIT_PRODUCER_ID, request, raises_epoch=current is not None)
        if self.state is TransactionState.FATAL_ERROR or identity is None:
            return None
        if self._to_add:
            adding = frozenset(self._to_add)
            return Ask(
                Step.ADD_PARTITIONS,
                add_partitions_request(transactional_id, identity, adding),
                partitions=adding,
            )
        if self._offsets:
            its = self._offsets[0]
            if its.group.group_id not in self._groups and not self.is_version_2:
                add = add_offsets_request(transactional_id, identity, its.group.group_id)
                return Ask(Step.ADD_OFFSETS, add, offsets=its)
            request_ = commit_offsets_request(transactional_id, identity, its.group, its.offsets)
            return Ask(Step.COMMIT_OFFSETS, request_, offsets=its)
        if self._drained and self._has_to_end():
            commit = self.state is TransactionState.COMMITTING
            return Ask(Step.END, end_request(transactional_id, identity, commit=commit), commit=commit)
        return None

    def sent(self, ask: Ask) -> None:
        """``ask`` is on its way; whether the broker gets it is unknown."""
        if ask.step in (Step.ADD_PARTITIONS, Step.ADD_OFFSETS, Step.COMMIT_OFFSETS):
            self._may_have_begun = True
        elif ask.step is Step.END and ask.commit:
            self._commits_sent += 1

    def answered(self, ask: Ask, response: Any) -> Reaction:
        """Take the response for ``ask``. RETRY and FIND_COORDINATOR concern the caller, and change nothing here."""
        reaction, what, code = _worst(ask, response)
        may_be_unknown = ask.step is Step.END and not (ask.commit or self._began or self.is_version_2)
        if code is ErrorCode.INVALID_TXN_STATE and may_be_unknown:
            reaction = Reaction.DONE  # the request that would have begun the transaction never arrived
        elif code in _NOT_COMMITTED and ask.commit and self.is_version_2:
            # The coordinator has aborted it; the answer to the abort has the new epoch, unless another has come.
            reaction = Reaction.ABORT
        if reaction is Reaction.DONE:
            self._done(ask, response)
        elif reaction in (Reaction.ABORT, Reaction.RENEW):
            lost = reaction is Reaction.RENEW or code is ErrorCode.UNKNOWN_PRODUCER_ID
            self._failed(ask, self._refusal(ask, what, code), epoch_is_lost=lost, forgotten=lost)
        elif reaction is Reaction.FENCED:
            self.stop(self._fenced(ask, code))
        elif reaction is Reaction.STOP:
            self.stop(self._refusal(ask, what, code))
        return reaction

    def refusal(self, ask: Ask, response: Any) -> Exception:
        """The error in a response, for messages."""
        _, what, code = _worst(ask, response)
        return self._refusal(ask, what, code)

    def refused(self, ask: Ask, error: ClientError) -> None:
        """``ask`` can't be sent: its coordinator isn't to be had, or is too old."""
        if ask.raises_epoch and not self._epoch_is_lost and isinstance(error, UnsupportedApiError):
            self._ready()  # a new epoch is only a precaution
        elif ask.group_id is not None:
            self._failed(ask, error)
        else:
            self.stop(error)

    def _done(self, ask: Ask, response: Any) -> None:
        if ask.step is Step.INIT_PRODUCER_ID:
            if self.state is TransactionState.INITIALIZING:
                self.identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                self._ready()
        elif ask.step is Step.ADD_PARTITIONS:
            self._began = True
            self.partitions |= ask.partitions
            self._to_add -= ask.partitions
        elif ask.step is Step.ADD_OFFSETS:
            assert ask.offsets is not None
            self._began = True
            self._groups.add(ask.offsets.group.group_id)
        elif ask.step is Step.COMMIT_OFFSETS:
            self._began = True
            if self._offsets and self._offsets[0] is ask.offsets:
                self._offsets.popleft().done = True
        else:
            if self.is_version_2 and not self._raise_epoch:
                self.identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                self.ids.current = self.identity
            self._end()
            return
        self._end_if_nothing_is_left()
        self._changed()

    def _failed(
        self, ask: Ask, error: Exception, *, epoch_is_lost: bool = False, forgotten: bool = False
    ) -> None:
        if ask.step is Step.END and not ask.commit:
            # The transaction is over in any case: a new epoch, or a new id, is all that is needed.
            epoch_is_lost = forgotten = True
        self.fail(error, epoch_is_lost=epoch_is_lost, forgotten=forgotten)
        self._end_if_nothing_is_left()
        self._changed()

    def _has_to_end(self) -> bool:
        """Whether the coordinator has to be asked to end the transaction."""
        if self.state is TransactionState.COMMITTING:
            return self._began
        return self.state is TransactionState.ABORTING and self._may_have_begun and not self._forgotten

    def _end_if_nothing_is_left(self) -> None:
        ending = self.state in (TransactionState.COMMITTING, TransactionState.ABORTING)
        if ending and self._drained and not (self._to_add or self._offsets or self._has_to_end()):
            self._end()

    def _end(self) -> None:
        """The transaction is over."""
        self.partitions.clear()
        self._groups.clear()
        self._began = self._may_have_begun = self._drained = False
        self.error = None
        if self._raise_epoch:
            self.ids.current = None
            self._become(TransactionState.INITIALIZING)
        else:
            self._become(TransactionState.READY)

    def _ready(self) -> None:
        self._raise_epoch = self._epoch_is_lost = self._forgotten = False
        self.ids.current = self.identity
        self._become(TransactionState.READY)

    def _forget_requests(self, error: Exception) -> None:
        self._to_add.clear()
        for each in self._offsets:
            each.error = error
            each.done = True
        self._offsets.clear()

    def _become(self, state: TransactionState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state.name} to {state.name}"
        self.state = state
        self.is_open = state is TransactionState.IN_TRANSACTION
        self._changed()

    def _check_not_fatal(self) -> None:
        if self.state is TransactionState.FATAL_ERROR:
            assert self.error is not None
            raise self.error

    def _check_not_failed(self) -> None:
        if self.state is TransactionState.ABORTABLE_ERROR:
            raise TransactionAbortedError(
                f"{self}: the transaction has failed and must be aborted: {self.error}"
            ) from self.error

    def _fenced(self, ask: Ask, code: ErrorCode) -> Exception:
        text = (
            f"{self}: another producer with this id has started, or a transaction took longer than"
            f" transaction_timeout_ms ({self.timeout_ms}) and its coordinator aborted it ({code.name}); this producer"
            " can't continue: create a new one"
        )
        if ask.commit and self._commits_sent > 1:
            text += ". An earlier try of the commit had no answer, so the transaction may have been committed"
        return ProducerFencedError(code, text)

    def _refusal(self, ask: Ask, what: str, code: ErrorCode) -> Exception:
        if ask.step is Step.COMMIT_OFFSETS:
            assert ask.offsets is not None
            group = ask.offsets.group
            return commit_error(group.group_id, code, what, group if group.member_id else None)
        if ask.step is Step.INIT_PRODUCER_ID and code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            return ConfigurationError(
                f"{self}: transaction_timeout_ms is {self.timeout_ms}, which is more than the broker's"
                f" transaction.max.timeout.ms ({code.name})"
            )
        why = _ADVICE.get(code)
        said = code.name if why is None else f"{why} ({code.name})"
        kind = ProducerFencedError if code is ErrorCode.PRODUCER_FENCED else BrokerError
        return kind(code, f"{self}: {_WHAT[ask.step].format(what)}: {said}")


def is_concurrent(ask: Ask, response: Any) -> bool:
    """Whether the coordinator still ends the last transaction, which is a matter of milliseconds."""
    return _worst(ask, response)[2] is ErrorCode.CONCURRENT_TRANSACTIONS


def _worst(ask: Ask, response: Any) -> tuple[Reaction, str, ErrorCode]:
    reactions = REACTIONS[ask.step]
    return worst([(reactions[code], what, code) for what, code in _codes(ask, response)])


def _codes(ask: Ask, response: Any) -> list[tuple[str, ErrorCode]]:
    """The subject of each error code in a response."""
    if ask.step is Step.ADD_PARTITIONS:
        by_partition = add_partitions_codes(response)
        missing = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        return [(str(each), error_code(by_partition.get(each, missing))) for each in sorted(ask.partitions)]
    if ask.step is Step.COMMIT_OFFSETS:
        assert ask.offsets is not None
        by_partition = commit_codes(response)
        missing = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        return [
            (f"offset {its.offset} of {each}", error_code(by_partition.get(each, missing)))
            for each, its in ask.offsets.offsets.items()
        ]
    what = "" if ask.offsets is None else repr(ask.offsets.group.group_id)
    return [(what, error_code(response.error_code))]


_NOT_READY = {
    TransactionState.UNINITIALIZED: "the producer is not started",
    TransactionState.INITIALIZING: "the producer waits for its new epoch after an aborted transaction; await the abort",
    TransactionState.IN_TRANSACTION: "a transaction is open; a producer has one at a time",
    TransactionState.COMMITTING: (
        "the commit of the last transaction has no outcome yet; call commit again to learn it"
    ),
    TransactionState.ABORTABLE_ERROR: "the last transaction has failed; abort it first",
    TransactionState.ABORTING: "the last transaction is still being aborted; await the abort",
}
_NOT_OPEN = {
    TransactionState.UNINITIALIZED: "the producer is not started",
    TransactionState.INITIALIZING: "no transaction is open",
    TransactionState.READY: 'no transaction is open: use "{} producer.transaction()"',
    TransactionState.COMMITTING: "the transaction is being committed",
    TransactionState.ABORTING: "the transaction is being aborted",
}
_NOT_COMMITTED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
"""The answers to a commit that comes after the transaction's time was up; Kafka up to 4.4 has the second."""
_WHAT = {
    Step.INIT_PRODUCER_ID: "the coordinator gave no producer id",
    Step.ADD_PARTITIONS: "{} can't be part of the transaction",
    Step.ADD_OFFSETS: "the offsets of group {} can't be part of the transaction",
    Step.END: "the transaction could not be ended",
}
_ADVICE = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user is not allowed to write to it",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user is not allowed to use the group",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user is not allowed to use this transactional id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user is not allowed to write to the cluster",
    ErrorCode.INVALID_TXN_STATE: (
        "the coordinator has no such transaction; it aborts one that takes longer than transaction_timeout_ms"
    ),
    ErrorCode.PRODUCER_FENCED: (
        "another producer with this id has started, or the coordinator has aborted the transaction, which took longer"
        " than transaction_timeout_ms"
    ),
    ErrorCode.OPERATION_NOT_ATTEMPTED: "another partition was refused",
    ErrorCode.TRANSACTION_ABORTABLE: "the broker asks to abort the transaction",
}
