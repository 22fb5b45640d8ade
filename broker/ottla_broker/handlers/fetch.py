"""Fetch: record batches straight from the segment files; for versions 0-3 see :mod:`.old_fetch`.

The response holds slices of files, which the connection sends with ``sendfile``; no record is touched. The first
partition with data returns at least one whole batch, however large; the others return what fits (KIP-74). A fetch that
finds less than ``min_bytes`` waits for ``max_wait_ms``.

Topics are named up to version 12 and have ids from 13; sessions exist from version 7 (KIP-227). Followers use the same
request (:mod:`.follower_fetch`). From version 11, consumers may read from any replica; the broker sends them to one in
their rack if it has a selector (KIP-392). Readers of committed records get the ranges of aborted transactions.
"""

from __future__ import annotations

from typing import Any, Final

from ottla_broker.handlers.api import CLUSTER, CLUSTER_ACTION, READ, TOPIC, Api
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.fetch_request import Fetch
from ottla_broker.handlers.follower_fetch import FollowerFetch
from ottla_broker.handlers.turns import OPENED_AT_ONCE, Steps
from ottla_broker.metadata.client_quotas import QuotaKind
from ottla_broker.network.pending_response import PendingResponse
from ottla_broker.replica.delayed_fetch import DelayedFetch
from ottla_broker.replica.fetch_session import FetchContext
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

API = Api(
    1,
    (0, 17),
    senders="clients and brokers",
    # Followers need the cluster, consumers the topics.
    needs={TOPIC: READ, CLUSTER: CLUSTER_ACTION},
    quota=QuotaKind.FETCH,
)

MANY: Final = 1_000
"""With more partitions a fetch takes turns with everything else."""

_FORMAT_2_SINCE = 4
"""The first version whose clients read format 2, and all before it."""


def handle(
    ctx: RequestContext, request: FetchRequest, consumers: type[Fetch] = Fetch
) -> FetchResponse | PendingResponse | Steps[Any]:
    """Read what the request asks for. ``consumers``: how consumers read, where they read in another way."""
    if ctx.version < _FORMAT_2_SINCE and consumers is Fetch:
        from ottla_broker.handlers import old_fetch

        return old_fetch.handle(ctx, request, handle)
    replica_id = request.replica_id
    if replica_id < 0:
        replica_id = request.replica_state.replica_id
    if replica_id >= 0:
        if not ctx.authorize(AclResource.CLUSTER):
            return _refuse(request)
        ctx.exempt = True
    try:
        context = ctx.services.fetch_sessions.context(
            request, uses_ids=ctx.version >= 13, of_follower=replica_id >= 0
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    if replica_id >= 0:
        fetch: Fetch = FollowerFetch(ctx, request, context, replica_id)
    else:
        fetch = consumers(ctx, request, context)
    if len(context.partitions) > OPENED_AT_ONCE and (
        _takes_turns(request, context, replica_id) or fetch.opens_many(request)
    ):
        return _read_many(ctx, request, fetch, context)
    size = fetch.read()
    return _answer_or_wait(ctx, request, fetch, context, size)


def _takes_turns(request: FetchRequest, context: FetchContext, replica_id: int) -> bool:
    """Whether very many partitions are read. A follower that names few has nothing new of the others."""
    if len(context.partitions) <= MANY:
        return False
    if replica_id < 0 or not context.incremental:
        return True
    return sum(len(topic.partitions) for topic in request.topics) > MANY


def _read_many(
    ctx: RequestContext, request: FetchRequest, fetch: Fetch, context: FetchContext
) -> Steps[FetchResponse | PendingResponse]:
    """Read very many partitions, in turns with everything else."""
    size = yield from fetch.read_in_steps()
    # An append to a partition that was read in an earlier turn has woken nothing.
    if size < fetch.min_bytes and not fetch.immediate and fetch.has_grown():
        fetch.drop()
        size = yield from fetch.read_in_steps()
        if fetch.has_grown():
            return fetch.response()
    in_turns = fetch.__class__ in (Fetch, FollowerFetch)
    return _answer_or_wait(ctx, request, fetch, context, size, in_turns)


def _answer_or_wait(
    ctx: RequestContext,
    request: FetchRequest,
    fetch: Fetch,
    context: FetchContext,
    size: int,
    in_turns: bool = False,
) -> FetchResponse | PendingResponse:
    # As in Kafka, an unknown topic alone doesn't end the wait, unless there is nothing to wait for.
    if fetch.immediate or size >= fetch.min_bytes or request.max_wait_ms <= 0 or not fetch.readable:
        return fetch.response()
    sessions = ctx.services.fetch_sessions
    if not sessions.may_wait(context):
        # As if its time were up: those that wait have as many partitions as are allowed.
        return fetch.response()
    pending = PendingResponse()

    def run() -> None:
        sessions.has_waited(context)
        if in_turns:
            pending.complete(_read_again(fetch))
            return
        answer: FetchResponse | Exception
        try:
            fetch.read()
            answer = fetch.response()
        except Exception as error:
            # A defect of the read, not of the append that woke this fetch: handled as in a fetch that didn't wait.
            answer = error
        pending.complete(answer)

    def abandon() -> None:
        sessions.has_waited(context)
        waiting.abandon()

    waiting = DelayedFetch(fetch.places(), fetch.min_bytes - size, ctx.services.clock, run)
    fetch.drop()
    pending.abandon = abandon
    waiting.start(request.max_wait_ms)
    return pending


def _read_again(fetch: Fetch) -> Steps[FetchResponse]:
    """Read very many partitions after the wait, in turns with everything else."""
    yield from fetch.read_in_steps()
    return fetch.response()


def _refuse(request: FetchRequest) -> FetchResponse:
    """Refuse a follower's fetch without CLUSTER_ACTION, as Kafka does."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=p.partition, error_code=code, high_watermark=-1, records=b""
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
