"""The states of a transactional producer, and what each answer of a coordinator means: two tables.

::

    UNINITIALIZED --> INITIALIZING --> READY --> IN_TRANSACTION --> COMMITTING --> READY
                                                    |      \\             |
                                                    |       v            v
                                                    |    ABORTABLE_ERROR
                                                    v       v
                                                    ABORTING --> READY, or INITIALIZING for a new epoch

Every state can become FATAL_ERROR, which is final. Source: Kafka's ``TransactionManager`` (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from ottla_protocol.errors import RETRIABLE, ErrorCode


class TransactionState(Enum):
    UNINITIALIZED = auto()
    INITIALIZING = auto()
    """Waits for a producer id and epoch."""
    READY = auto()
    """No transaction; one may begin."""
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    """Whether the transaction is committed is unknown until the coordinator answers."""
    ABORTABLE_ERROR = auto()
    """The transaction has failed, and waits for the application to abort it."""
    ABORTING = auto()
    FATAL_ERROR = auto()
    """The producer can't continue."""


_S = TransactionState

TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING, _S.FATAL_ERROR}),
    _S.INITIALIZING: frozenset({_S.READY, _S.FATAL_ERROR}),
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.FATAL_ERROR}),
    _S.IN_TRANSACTION: frozenset({_S.COMMITTING, _S.ABORTABLE_ERROR, _S.ABORTING, _S.FATAL_ERROR}),
    _S.COMMITTING: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING, _S.FATAL_ERROR}),
    _S.ABORTING: frozenset({_S.READY, _S.INITIALIZING, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset(),
}


class Step(Enum):
    """The request that an answer belongs to."""

    INIT_PRODUCER_ID = auto()
    ADD_PARTITIONS = auto()
    ADD_OFFSETS = auto()
    COMMIT_OFFSETS = auto()
    END = auto()


class Reaction(Enum):
    """The producer's reaction to an answer. Of several, the later one in this list counts."""

    DONE = auto()
    RETRY = auto()
    """Ask again after a back-off."""
    FIND_COORDINATOR = auto()
    """Another broker is the coordinator: look it up and ask again."""
    ABORT = auto()
    """The transaction has failed: it has to be aborted."""
    RENEW = auto()
    """Like ABORT, but the coordinator knows nothing of this producer any more: it needs a new id instead of EndTxn."""
    FENCED = auto()
    """A newer producer has the transactional id, or the coordinator has aborted an overdue transaction: stop."""
    STOP = auto()
    """The producer can't continue."""


_ALWAYS: Final = {
    **dict.fromkeys(RETRIABLE, Reaction.RETRY),
    ErrorCode.NONE: Reaction.DONE,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
    ErrorCode.INVALID_PRODUCER_EPOCH: Reaction.FENCED,
    ErrorCode.PRODUCER_FENCED: Reaction.FENCED,
}
_IN_TRANSACTION: Final = {
    **_ALWAYS,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Reaction.RENEW,
    ErrorCode.TRANSACTION_ABORTABLE: Reaction.ABORT,
    ErrorCode.UNKNOWN_PRODUCER_ID: Reaction.ABORT,
}

REACTIONS: Final[Mapping[Step, Mapping[ErrorCode, Reaction]]] = {
    Step.INIT_PRODUCER_ID: {
        **dict.fromkeys(ErrorCode, Reaction.STOP),
        **_ALWAYS,
    },
    Step.ADD_PARTITIONS: {
        **dict.fromkeys(ErrorCode, Reaction.ABORT),
        **_IN_TRANSACTION,
        ErrorCode.INVALID_TXN_STATE: Reaction.STOP,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Reaction.STOP,
    },
    Step.ADD_OFFSETS: {
        **dict.fromkeys(ErrorCode, Reaction.STOP),
        **_IN_TRANSACTION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.ABORT,
        ErrorCode.INVALID_GROUP_ID: Reaction.ABORT,
    },
    Step.COMMIT_OFFSETS: {
        **dict.fromkeys(ErrorCode, Reaction.STOP),
        **_IN_TRANSACTION,
        ErrorCode.REQUEST_TIMED_OUT: Reaction.FIND_COORDINATOR,
        **dict.fromkeys(
            (
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.GROUP_AUTHORIZATION_FAILED,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
                ErrorCode.INVALID_GROUP_ID,
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.STALE_MEMBER_EPOCH,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ErrorCode.UNKNOWN_MEMBER_ID,
            ),
            Reaction.ABORT,
        ),
    },
    Step.END: {
        **dict.fromkeys(ErrorCode, Reaction.STOP),
        **_IN_TRANSACTION,
    },
}
"""By request and error code. Other than in Java, errors of a group and its offsets never stop the producer."""


def worst(found: list[tuple[Reaction, str, ErrorCode]]) -> tuple[Reaction, str, ErrorCode]:
    """The reaction that counts, with what it is for and its code."""
    return max(
        found,
        key=lambda each: (each[0].value, each[2] is not ErrorCode.OPERATION_NOT_ATTEMPTED),
        default=(Reaction.DONE, "", ErrorCode.NONE),
    )
