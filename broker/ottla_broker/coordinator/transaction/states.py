"""The states of a transactional id, as tables.

::

    Empty ----partitions are added--> Ongoing --the producer commits--> PrepareCommit --markers--> CompleteCommit
                                         |------the producer aborts----> PrepareAbort --markers--> CompleteAbort
                                         '--fenced--> PrepareEpochFence -----^

A producer of transaction version 2 may also abort where nothing was added: it doesn't know whether its request came.
A completed transaction is the start of the next one. InitProducerId makes a completed or empty one *Empty*. In
*PrepareEpochFence* the coordinator gives an ongoing transaction a higher epoch before it aborts it, because a new
instance of the producer has come or because time is up; no log has this state. *PrepareCommit* and *PrepareAbort* are
final decisions: once the log has committed one of them, it is carried out, if necessary by another coordinator. An id
that isn't used for a long time is *Dead* while its tombstone is written.

Kafka: ``TransactionMetadata.scala``, where states name their valid predecessors; here an event names the successor.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from ottla_broker.coordinator import codes


class TransactionState(Enum):
    """A state; its value is its name in DescribeTransactions and ListTransactions. Their order is that of the log."""

    # Enum's own hash calls Python each time that a table is asked.
    __hash__ = object.__hash__

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


class Event(Enum):
    """An event of a transactional id."""

    __hash__ = object.__hash__

    INIT = "a producer asks for its id and epoch"
    ADD = "partitions become part of the transaction"
    COMMIT = "the producer commits"
    ABORT = "the transaction is aborted"
    FENCE = "the producer is replaced, or has taken too long"
    MARKED = "all partitions have their markers"
    EXPIRE = "the id has not been used for a long time"


(
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    PREPARE_ABORT,
    COMPLETE_COMMIT,
    COMPLETE_ABORT,
    DEAD,
    PREPARE_EPOCH_FENCE,
) = TransactionState

TRANSITIONS: Final[dict[TransactionState, dict[Event, TransactionState]]] = {
    EMPTY: {Event.INIT: EMPTY, Event.ADD: ONGOING, Event.ABORT: PREPARE_ABORT, Event.EXPIRE: DEAD},
    ONGOING: {
        Event.ADD: ONGOING,
        Event.COMMIT: PREPARE_COMMIT,
        Event.ABORT: PREPARE_ABORT,
        Event.FENCE: PREPARE_EPOCH_FENCE,
    },
    PREPARE_COMMIT: {Event.MARKED: COMPLETE_COMMIT},
    PREPARE_ABORT: {Event.MARKED: COMPLETE_ABORT},
    COMPLETE_COMMIT: {Event.INIT: EMPTY, Event.ADD: ONGOING, Event.ABORT: PREPARE_ABORT, Event.EXPIRE: DEAD},
    COMPLETE_ABORT: {Event.INIT: EMPTY, Event.ADD: ONGOING, Event.ABORT: PREPARE_ABORT, Event.EXPIRE: DEAD},
    DEAD: {},
    PREPARE_EPOCH_FENCE: {Event.ABORT: PREPARE_ABORT},
}

STATE_IDS: Final[dict[TransactionState, int]] = {state: id_ for id_, state in enumerate(TransactionState)}
"""The numbers of states in the log."""
STATE_BY_ID: Final[dict[int, TransactionState]] = dict(enumerate(TransactionState))
STATE_BY_NAME: Final[dict[str, TransactionState]] = {state.value: state for state in TransactionState}

Answers = Mapping[TransactionState, tuple[int | None, int | None]]

END: Final[Answers] = {
    #                commit, abort: the answer; None begins it
    EMPTY: (codes.INVALID_TXN_STATE, codes.INVALID_TXN_STATE),
    ONGOING: (None, None),
    PREPARE_COMMIT: (codes.CONCURRENT_TRANSACTIONS, codes.CONCURRENT_TRANSACTIONS),
    PREPARE_ABORT: (codes.CONCURRENT_TRANSACTIONS, codes.CONCURRENT_TRANSACTIONS),
    COMPLETE_COMMIT: (codes.NONE, codes.INVALID_TXN_STATE),
    COMPLETE_ABORT: (codes.INVALID_TXN_STATE, codes.NONE),
    DEAD: (codes.CONCURRENT_TRANSACTIONS, codes.CONCURRENT_TRANSACTIONS),
    PREPARE_EPOCH_FENCE: (codes.CONCURRENT_TRANSACTIONS, codes.CONCURRENT_TRANSACTIONS),
}
"""The answers to an EndTxn of the current producer. A repeated one gets NONE once the markers are written.

Kafka has decided on the next state as long as markers are missing, so it answers CONCURRENT_TRANSACTIONS then, too.
"""

END_WITH_BUMP: Final[Answers] = {
    **END,
    EMPTY: (codes.INVALID_TXN_STATE, None),
    COMPLETE_COMMIT: (codes.INVALID_TXN_STATE, None),
    COMPLETE_ABORT: (codes.INVALID_TXN_STATE, None),
}
"""The answers to an EndTxn that raises the epoch: under the current epoch it ends the next transaction."""

END_REPEATED: Final[Answers] = {**END, COMPLETE_ABORT: (codes.PRODUCER_FENCED, codes.NONE)}
"""The answers to an EndTxn that names the epoch before: the client sends again what has raised the epoch.

A commit that finds an abort is no repetition: the coordinator has aborted the transaction, because its time was up or a
new instance has come (KAFKA-20785).
"""

PREPARED: Final = frozenset(state for state, events in TRANSITIONS.items() if Event.MARKED in events)
"""The transaction has ended, but not all of its partitions have their markers yet."""

CAN_EXPIRE: Final = frozenset(state for state, events in TRANSITIONS.items() if Event.EXPIRE in events)


class TransactionStateError(Exception):
    """An event that the state doesn't allow: a defect of this broker, never of a client."""


def state_after(state: TransactionState, *events: Event) -> TransactionState:
    """The state after ``events``. Raises TransactionStateError when the table has no such transition."""
    for event in events:
        next_state = TRANSITIONS[state].get(event)
        if next_state is None:
            raise TransactionStateError(f"a transaction in state {state.value} can't handle: {event.value}")
        state = next_state
    return state
