"""Produce in a transaction: what is asked of its coordinator before the batches are appended (KIP-890).

Only a batch that begins a producer's transaction in a partition is verified; see
:mod:`ottla_broker.log.verification`. From version 12 on, the coordinator adds the partition instead. Mostly nothing has
to be waited for: no batch has to be verified, or this broker is the coordinator.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Final, NamedTuple

from ottla_broker.log.verification import VerificationGuard
from ottla_broker.replica.transaction_verifier import (
    MAX_WAITING_BYTES,
    TopicPartition,
    TransactionVerifier,
    Verdicts,
    Verification,
)
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.produce import ProduceRequest
from ottla_protocol.records.batch import (
    FLAGS_AT,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    read_header,
)

_KNOWS_ABORTABLE: Final = 11
"""The first version whose clients know TRANSACTION_ABORTABLE."""
_ADDS: Final = 12
"""The first version that adds partitions to the transaction. Its clients know CONCURRENT_TRANSACTIONS."""

_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Producers may not know that these pass, so they get NOT_ENOUGH_REPLICAS, on which they send the batch again."""

Failure = tuple[ErrorCode, str | None]


class Verified(NamedTuple):
    """The outcome of the verification.

    Attributes:
        guards: what the batches that begin a transaction are appended with.
        failures: of the partitions that were not verified.
    """

    guards: dict[TopicPartition, VerificationGuard]
    failures: dict[TopicPartition, Failure]


def transactional_batches(request: ProduceRequest) -> dict[TopicPartition, BatchHeader]:
    """The headers of the partitions' transactional batches, as far as they can be read."""
    found: dict[TopicPartition, BatchHeader] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None and len(records) >= HEADER_SIZE and records[FLAGS_AT] & TRANSACTIONAL:
                try:
                    found[topic.name, data.index] = read_header(records)
                except CorruptRecordError:
                    continue  # its append fails and answers why
    return found


def verification_of(
    ctx: RequestContext, request: ProduceRequest, batches: Mapping[TopicPartition, BatchHeader]
) -> Verified | Coroutine[Any, None, Verified]:
    """Have the ``batches``, all of one producer, verified: the outcome, or a wait for it."""
    verifier = ctx.services.transaction_verifier
    adds = ctx.version >= _ADDS
    guards = {}
    if verifier is not None and (adds or ctx.services.config.transaction_partition_verification_enable):
        guards = _begin(ctx, batches)
    if verifier is None or not guards:
        return Verified({}, {})
    header = next(iter(batches.values()))
    verification = Verification(
        request.transactional_id or "", header.producer_id, header.producer_epoch, list(guards), adds
    )
    outcome: Result[Verified] = Result()

    def verified(verdicts: Verdicts) -> None:
        # The marker of the transaction before makes a guard void. What is added can do without one: the marker of its
        # own transaction has a higher epoch, for which the batch is refused.
        now = _begin(ctx, {key: batches[key] for key in guards}) if adds else guards
        failures = {key: _failure(code, ctx.version) for key, code in verdicts.items()}
        # This broker leads more partitions than when it asked: no one knows that the transaction writes to these.
        others = _begin(ctx, {key: header for key, header in batches.items() if key not in guards})
        outcome.give(Verified(now, {**failures, **dict.fromkeys(others, _NOT_ASKED)}))

    verifier.verify(verification, verified)
    if outcome.given:
        return outcome.value()
    size = sum(len(data.records or b"") for topic in request.topic_data for data in topic.partition_data)
    if verifier.waiting_bytes + size > MAX_WAITING_BYTES:
        return Verified({}, dict.fromkeys(guards, _BUSY))
    return _waited(verifier, outcome, size)


async def _waited(verifier: TransactionVerifier, outcome: Result[Verified], size: int) -> Verified:
    verifier.waiting_bytes += size
    try:
        return await outcome
    finally:
        verifier.waiting_bytes -= size


_BUSY: Final[Failure] = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    "Unable to verify the partition has been added to the transaction: too many batches wait for that",
)


_NOT_ASKED: Final[Failure] = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    "Unable to verify the partition has been added to the transaction: this broker has just become its leader",
)


def _begin(
    ctx: RequestContext, batches: Mapping[TopicPartition, BatchHeader]
) -> dict[TopicPartition, VerificationGuard]:
    """The guards of the batches that begin a transaction. Partitions that can't be written to fail when they are."""
    now_ms = ctx.services.clock.now_ms()
    adds = ctx.version >= _ADDS
    guards = {}
    for key, header in batches.items():
        try:
            guard = ctx.partition(*key).begin_verification(
                header.producer_id, header.base_sequence, header.producer_epoch, now_ms, adds=adds
            )
        except KafkaError:
            continue
        if guard is not None:
            guards[key] = guard
    return guards


def _failure(code: ErrorCode, version: int) -> Failure:
    """A verdict as producers of this version of the API expect it (``ReplicaManager.handleProduceAppend``)."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return code, "Partition was not added to the transaction"
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= _ADDS:
        return code, None
    if code in _TRY_AGAIN:
        return (
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            f"{code.name}",
        )
    return code, None
