"""Produce in a transaction: what is asked of its coordinator before the batches are appended (KIP-890).

Only a batch that begins a producer's transaction in a partition is verified; see
:mod:`ottla_broker.log.verification`. From version 12 on, the coordinator adds the partition instead. Most requests go
on at once: nothing has to be verified, or this broker is the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from ottla_broker.events import get_logger
from ottla_broker.handlers.context import RequestContext
from ottla_broker.log.verification import VerificationGuard
from ottla_broker.network.pending_response import CloseConnection, PendingResponse
from ottla_broker.replica.transaction_verifier import (
    MAX_WAITING_BYTES,
    TopicPartition,
    Verdicts,
    Verification,
)
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.records.batch import (
    FLAGS_AT,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    read_header,
)

_log = get_logger()

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


Append = Callable[[ProduceRequest, Verified, PendingResponse | None], Any]
"""Appends a request's batches and answers it; by the pending response, if there is one and it has to wait."""


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


def append_verified(
    ctx: RequestContext,
    request: ProduceRequest,
    batches: dict[TopicPartition, BatchHeader],
    append: Append,
) -> Any:
    """Verify the ``batches``, all of one producer, and then append the request."""
    verifier = ctx.services.transaction_verifier
    adds = ctx.version >= _ADDS
    guards = {}
    if verifier is not None and (adds or ctx.services.config.transaction_partition_verification_enable):
        guards = _begin(ctx, batches)
    if verifier is None or not guards:
        return append(request, Verified({}, {}), None)
    header = next(iter(batches.values()))
    verification = Verification(
        request.transactional_id or "", header.producer_id, header.producer_epoch, list(guards), adds
    )
    # The marker of the transaction before makes a guard void. What is added can do without one: the marker of its own
    # transaction has a higher epoch, for which the batch is refused.
    guards_of = partial(_begin, ctx, batches) if adds else lambda: guards
    waiting = _Waiting(ctx.version, guards_of, append)
    verifier.verify(verification, waiting.verified)
    if waiting.result is not None:
        return append(request, waiting.result, None)
    size = sum(len(data.records or b"") for topic in request.topic_data for data in topic.partition_data)
    if verifier.waiting_bytes + size > MAX_WAITING_BYTES:
        return append(request, Verified({}, dict.fromkeys(guards, _BUSY)), None)
    verifier.waiting_bytes += size

    def release() -> None:
        verifier.waiting_bytes -= size

    return waiting.wait(request, release)


_BUSY: Final[Failure] = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    "Unable to verify the partition has been added to the transaction: too many batches wait for that",
)


def _begin(
    ctx: RequestContext, batches: dict[TopicPartition, BatchHeader]
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


class _Waiting:
    """A produce request whose batches are being verified."""

    __slots__ = ("_append", "_guards_of", "_pending", "_release", "_request", "_version", "result")

    def __init__(
        self, version: int, guards_of: Callable[[], dict[TopicPartition, VerificationGuard]], append: Append
    ) -> None:
        self._version = version
        self._guards_of = guards_of
        self._append = append
        self._request: ProduceRequest | None = None
        self._pending: PendingResponse | None = None
        self._release: Callable[[], None] = lambda: None
        self.result: Verified | None = None

    def verified(self, verdicts: Verdicts) -> None:
        self.result = Verified(
            self._guards_of(), {key: _failure(code, self._version) for key, code in verdicts.items()}
        )
        if self._pending is not None:
            self._resume(self._pending, self.result)

    def wait(self, request: ProduceRequest, release: Callable[[], None]) -> PendingResponse:
        """Keep a copy of the request, whose frame is used again, until its batches are verified."""
        self._request = _copy(request)
        self._release = release
        self._pending = PendingResponse(self._abandon)
        return self._pending

    def _abandon(self) -> None:
        """The client has gone: a batch that it wasn't promised is not appended any more."""
        if self._request is not None:
            self._request = None
            self._release()

    def _resume(self, pending: PendingResponse, result: Verified) -> None:
        request, self._request = self._request, None
        if request is None:
            return
        self._release()
        try:
            answer = self._append(request, result, pending)
        except CloseConnection as error:
            answer = error
        except Exception as error:
            # It is raised in the middle of a coordinator's answer, so the client learns of it by its connection's end.
            _log.error("a verified produce request failed", exc_info=error)
            answer = CloseConnection("a defect in the broker, see above")
        if answer is not pending:
            pending.complete(answer)


def _copy(request: ProduceRequest) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic.name,
                partition_data=[
                    PartitionProduceData(
                        index=data.index,
                        records=None if data.records is None else memoryview(bytearray(data.records)),
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ],
    )


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
