"""TxnOffsetCommit: offsets of a group that count once their transaction is committed.

Version 2 has leader epochs (KIP-320), 3 names the group's member and is flexible (KIP-447), 4 has
TRANSACTION_ABORTABLE, 5 makes the group part of the transaction (KIP-890). A partition that doesn't exist is refused
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.commits import CommitItem
from ottla_broker.coordinator.group.member import Sender
from ottla_broker.coordinator.group.offsets import Committed
from ottla_broker.handlers.api import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE, Api
from ottla_broker.handlers.authorization import DENIED
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.late_requests import is_uncertain
from ottla_broker.handlers.offset_commit import commit_items
from ottla_broker.handlers.transactions import TRY_AGAIN
from ottla_broker.handlers.turns import Steps
from ottla_broker.log.verification import VerificationGuard
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_broker.network.pending_response import CloseConnection, PendingResponse
from ottla_broker.replica.transaction_verifier import TopicPartition, Verdicts, Verification
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


def handle(
    ctx: RequestContext, request: TxnOffsetCommitRequest
) -> Steps[PendingResponse | TxnOffsetCommitResponse]:
    now_ms = ctx.services.clock.now_ms()

    def committed(partition: TxnOffsetCommitRequestPartition) -> Committed:
        return Committed(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            now_ms,
        )

    items, waiting, topics = yield from commit_items(
        ctx,
        request,
        _forbidden(ctx, request),
        committed,
        TxnOffsetCommitResponseTopic,
        TxnOffsetCommitResponsePartition,
    )
    response = TxnOffsetCommitResponse(topics=topics)
    if not items:
        return response
    commit = _Commit(ctx, request, items, waiting, response)
    commit.start()
    return commit.pending


class _Commit:
    """A request whose offsets may be written once its transaction is verified (KIP-890)."""

    def __init__(
        self,
        ctx: RequestContext,
        request: TxnOffsetCommitRequest,
        items: list[CommitItem],
        answers: list[TxnOffsetCommitResponsePartition],
        response: TxnOffsetCommitResponse,
    ) -> None:
        self.pending = PendingResponse(self._abandon)
        self._ctx = ctx
        self._request = request
        self._producer = (request.producer_id, request.producer_epoch)
        self._items = items
        self._answers = answers
        self._response = response
        self._abandoned = False

    def _abandon(self) -> None:
        """The client has gone: offsets whose verification is under way are not written any more."""
        self._abandoned = True

    def start(self) -> None:
        if not self._refuse_late():
            self._verify()

    def _refuse_late(self) -> bool:
        """Refuse a request that may have been sent before its producer went on (decision 9)."""
        arrival = self._ctx.services.groups.hear(
            self._request.group_id, self._producer, self._ctx.connection.age
        )
        try:
            uncertain = is_uncertain(arrival, "its producer")
        except CloseConnection as closed:
            self.pending.complete(closed)
            return True
        if uncertain:
            self._reply([TRY_AGAIN] * len(self._items))
        return uncertain

    def _verify(self) -> None:
        services, request = self._ctx.services, self._request
        verifier = services.transaction_verifier
        adds = self._ctx.version >= _ADDS
        guard = None
        if verifier is not None and (adds or services.config.transaction_partition_verification_enable):
            guard = services.groups.begin_verification(request.group_id, self._producer)
        if verifier is None or guard is None:
            self._write(None)
            return
        partition = (OFFSETS_TOPIC, services.groups.partition_for(request.group_id))
        verification = Verification(request.transactional_id, *self._producer, [partition], adds)
        verifier.verify(verification, partial(self._verified, guard, partition))

    def _verified(
        self, guard: VerificationGuard | None, partition: TopicPartition, verdicts: Verdicts
    ) -> None:
        code = verdicts.get(partition)
        if self._abandoned:
            return
        if self._ctx.version >= _ADDS:
            # The marker of the transaction before may have made it void; that of this one has a higher epoch.
            guard = self._ctx.services.groups.begin_verification(self._request.group_id, self._producer)
        if self._refuse_late():
            return
        if code is None:
            self._write(guard)
        else:
            self._reply([_failure(code, self._ctx.version)] * len(self._items))

    def _write(self, guard: VerificationGuard | None) -> None:
        request = self._request
        self._ctx.services.groups.commit_transactional(
            request.group_id,
            self._producer,
            Sender(request.member_id, request.group_instance_id, request.generation_id),
            self._items,
            self._reply,
            guard,
        )

    def _reply(self, errors: Sequence[int]) -> None:
        for answer, error in zip(self._answers, errors, strict=True):
            if error == codes.COORDINATOR_LOAD_IN_PROGRESS and self._ctx.version < _KNOWS_LOADING:
                error = codes.COORDINATOR_NOT_AVAILABLE
            answer.error_code = error
        self.pending.complete(self._response)


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
