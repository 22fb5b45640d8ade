"""TxnOffsetCommit: offsets of a group that count once their transaction is committed.

Version 2 has leader epochs (KIP-320), 3 names the group's member and is flexible (KIP-447), 4 has
TRANSACTION_ABORTABLE, 5 makes the group part of the transaction (KIP-890). A partition that doesn't exist is refused
alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_broker.api_parts.transactions import TRY_AGAIN
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.commits import CommitItem
from ottla_broker.coordinator.group.member import Sender
from ottla_broker.coordinator.group.offsets import Committed
from ottla_broker.handlers.offset_commit import commit_items
from ottla_broker.log.verification import VerificationGuard
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_broker.replica.transaction_verifier import Verdicts, Verification
from ottla_broker.requests.api import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result, unread
from ottla_broker.requests.late_requests import is_uncertain
from ottla_broker.security.authorization import DENIED
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

API = Api(28, (0, 5), coordinated=True, needs={TRANSACTIONAL_ID: WRITE, GROUP: READ, TOPIC: READ})

_KNOWS_ABORTABLE = 4
_ADDS = 5
_KNOWS_LOADING = 2
"""Older clients fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""


async def handle(ctx: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    now_ms = ctx.services.clock.now_ms()

    def committed(partition: TxnOffsetCommitRequestPartition) -> Committed:
        return Committed(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            now_ms,
        )

    items, waiting, topics = await commit_items(
        ctx,
        request,
        _forbidden(ctx, request),
        committed,
        TxnOffsetCommitResponseTopic,
        TxnOffsetCommitResponsePartition,
    )
    if items:
        errors = await _commit(ctx, request, items)
        for answer, error in zip(waiting, errors, strict=True):
            if error == codes.COORDINATOR_LOAD_IN_PROGRESS and ctx.version < _KNOWS_LOADING:
                error = codes.COORDINATOR_NOT_AVAILABLE
            answer.error_code = error
    return TxnOffsetCommitResponse(topics=topics)


async def _commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest, items: list[CommitItem]
) -> Sequence[int]:
    """Write the offsets once their transaction is verified (KIP-890). Returns the error code of each."""
    groups, group_id = ctx.services.groups, request.group_id
    producer = (request.producer_id, request.producer_epoch)
    if _is_uncertain(ctx, group_id, producer):
        return [TRY_AGAIN] * len(items)
    guard = _guard(ctx, group_id, producer)
    if guard is not None:
        code = await _verified(ctx, request, producer)
        if ctx.version >= _ADDS:
            # The marker of the transaction before may have made it void; that of this one has a higher epoch.
            guard = _guard(ctx, group_id, producer)
        if _is_uncertain(ctx, group_id, producer):
            return [TRY_AGAIN] * len(items)
        if code is not None:
            return [_failure(code, ctx.version)] * len(items)
    written: Result[Sequence[int]] = Result()
    sender = Sender(request.member_id, request.group_instance_id, request.generation_id)
    groups.commit_transactional(group_id, producer, sender, items, written.give, guard)
    return await written


def _is_uncertain(ctx: RequestContext, group_id: str, producer: tuple[int, int]) -> bool:
    """Whether it may have been sent before its producer went on (decision 9). Raises CloseConnection: it was."""
    return is_uncertain(ctx.services.groups.hear(group_id, producer, ctx.connection.age), "its producer")


def _guard(ctx: RequestContext, group_id: str, producer: tuple[int, int]) -> VerificationGuard | None:
    """What a commit that begins the group's part of a transaction needs; None: it needs no verification."""
    services = ctx.services
    if services.transaction_verifier is None or not (
        ctx.version >= _ADDS or services.config.transaction_partition_verification_enable
    ):
        return None
    return services.groups.begin_verification(group_id, producer)


async def _verified(
    ctx: RequestContext, request: TxnOffsetCommitRequest, producer: tuple[int, int]
) -> ErrorCode | None:
    """Ask the transaction's coordinator; nothing is read from the connection meanwhile, as for Produce."""
    verifier = ctx.services.transaction_verifier
    assert verifier is not None
    partition = (OFFSETS_TOPIC, ctx.services.groups.partition_for(request.group_id))
    verdicts: Result[Verdicts] = Result()
    adds = ctx.version >= _ADDS
    verifier.verify(Verification(request.transactional_id, *producer, [partition], adds), verdicts.give)
    with unread(ctx.connection):
        return (await verdicts).get(partition)


def _failure(code: ErrorCode, version: int) -> int:
    """A verdict as producers of this version expect it (``GroupMetadataManager.maybeConvertOffsetCommitError``)."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE:
        return codes.INVALID_TXN_STATE
    # Older clients don't expect it; on this one they try again without looking for another coordinator.
    return codes.COORDINATOR_LOAD_IN_PROGRESS if code is ErrorCode.NETWORK_EXCEPTION else int(code)


def _forbidden(ctx: RequestContext, request: TxnOffsetCommitRequest) -> int:
    for resource, name in (
        (AclResource.TRANSACTIONAL_ID, request.transactional_id),
        (AclResource.GROUP, request.group_id),
    ):
        if not ctx.authorize(resource, name):
            return int(DENIED[resource])
    return 0
