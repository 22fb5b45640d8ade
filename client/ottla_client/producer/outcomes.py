"""The meaning of a response for a batch: one table from error code to outcome.

Source: Kafka's ``Sender.completeBatch``, ``TransactionManager.canRetry`` and the ``InvalidMetadataException`` classes.
"""

from __future__ import annotations

from enum import Enum, auto

from ottla_protocol.errors import RETRIABLE, ErrorCode

from ..errors import BrokerError, ProducerFencedError, RecordTooLargeError, UnknownTopicError


class Outcome(Enum):
    """The reaction to a response for a batch."""

    DONE = auto()
    """The broker has it."""
    RETRY = auto()
    """Send the same bytes again, after the back-off."""
    MOVED = auto()
    """Like RETRY, and refresh the metadata."""
    SPLIT = auto()
    """Too large: split it into halves, or fail a single record."""
    RESEQUENCE = auto()
    """The broker lacks earlier sequences: RETRY if they are still to come, otherwise start a new epoch (KIP-360)."""
    FAIL = auto()
    """Fail its records."""
    STOP = auto()
    """Like FAIL, and stop the producer: no broker will accept its records."""


_METADATA_IS_OLD = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LISTENER_NOT_FOUND,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)

OUTCOMES: dict[ErrorCode, Outcome] = {
    **dict.fromkeys(ErrorCode, Outcome.FAIL),
    **dict.fromkeys(RETRIABLE, Outcome.RETRY),
    **dict.fromkeys(_METADATA_IS_OLD, Outcome.MOVED),
    ErrorCode.NONE: Outcome.DONE,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Outcome.DONE,
    ErrorCode.MESSAGE_TOO_LARGE: Outcome.SPLIT,
    ErrorCode.RECORD_LIST_TOO_LARGE: Outcome.SPLIT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Outcome.RESEQUENCE,
    ErrorCode.UNKNOWN_PRODUCER_ID: Outcome.RESEQUENCE,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Outcome.STOP,
    ErrorCode.PRODUCER_FENCED: Outcome.STOP,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Outcome.STOP,
}
"""By error code. Without idempotence RESEQUENCE means FAIL."""


_ADVICE = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user is not allowed to write to it",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "this user is not allowed to write idempotently: grant it IDEMPOTENT_WRITE, or set enable_idempotence=False"
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user is not allowed to use this transactional id",
    ErrorCode.INVALID_TXN_STATE: "the partition is not part of the transaction, which may have been aborted",
    ErrorCode.TRANSACTION_ABORTABLE: "the broker asks to abort the transaction",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the broker doesn't allow this name",
    ErrorCode.INVALID_REQUIRED_ACKS: 'acks must be 0, 1 or "all"',
    ErrorCode.INVALID_RECORD: "a compacted topic needs a key in each record",
    ErrorCode.INVALID_TIMESTAMP: (
        "a timestamp is too far from the broker's clock: see the topic's message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms"
    ),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker is too old for this compression_type",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic keeps an older record format (message.format.version)",
    ErrorCode.POLICY_VIOLATION: "a policy of the broker refused it",
}


def refusal(code: ErrorCode, where: str, explanation: str | None, *, bytes_sent: int) -> BrokerError:
    """The exception for records that the leader of ``where`` refused; ``explanation`` is the broker's."""
    why = explanation or _ADVICE.get(code, "")
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return RecordTooLargeError(
            f"{where} refused a record whose batch has {bytes_sent} bytes: raise the topic's max.message.bytes (or the "
            "broker's message.max.bytes), or make the record smaller"
        )
    text = f"{where} refused the records with {code.name}" + (f": {why}" if why else "")
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicError(text)
    if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        return ProducerFencedError(code, text)
    return BrokerError(code, text)
