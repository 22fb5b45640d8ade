"""Fetch: record batches straight from the segment files; for versions 0-3 see :mod:`ottla_broker.fetch.old_fetch`.

The response holds slices of files, which the connection sends with ``sendfile``; no record is touched. The first
partition with data returns at least one whole batch, however large; the others return what fits (KIP-74). A fetch that
finds less than ``min_bytes`` waits for ``max_wait_ms``.

Topics are named up to version 12 and have ids from 13; sessions exist from version 7 (KIP-227). Followers use the same
request (:mod:`ottla_broker.fetch.follower_fetch`). From version 11, consumers may read from any replica; the broker
sends them to one in their rack if it has a selector (KIP-392). Readers of committed records get the ranges of aborted
transactions.
"""

from __future__ import annotations

from typing import Final

from ottla_broker.fetch.fetch_request import Fetch
from ottla_broker.fetch.follower_fetch import FollowerFetch
from ottla_broker.metadata.client_quotas import QuotaKind
from ottla_broker.replica.fetch_session import FetchContext
from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, READ, TOPIC, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.turns import OPENED_AT_ONCE
from ottla_broker.requests.waits import until_grown
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


async def handle(ctx: RequestContext, request: FetchRequest) -> FetchResponse:
    if ctx.version >= _FORMAT_2_SINCE:
        fetched = _fetch(ctx, request, Fetch)
        del request  # which would be kept while it waits
        return await fetched
    from ottla_broker.fetch import old_fetch

    return await old_fetch.converted(ctx, request, await _fetch(ctx, request, old_fetch.OldFetch))


async def _fetch(ctx: RequestContext, request: FetchRequest, consumers: type[Fetch]) -> FetchResponse:
    """Read what the request asks for; wait if that is too little. ``consumers``: how consumers read."""
    replica_id = request.replica_id
    if replica_id < 0:
        replica_id = request.replica_state.replica_id
    if replica_id >= 0:
        if not ctx.authorize(AclResource.CLUSTER):
            return _refuse(request)
        ctx.exempt = True
    sessions = ctx.services.fetch_sessions
    try:
        context = sessions.context(request, uses_ids=ctx.version >= 13, of_follower=replica_id >= 0)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    if replica_id >= 0:
        fetch: Fetch = FollowerFetch(ctx, request, context, replica_id)
    else:
        fetch = consumers(ctx, request, context)
    in_portions = len(context.partitions) > OPENED_AT_ONCE and (
        _takes_turns(request, context, replica_id) or fetch.opens_many(request)
    )
    max_wait_ms = request.max_wait_ms
    del request
    size = await fetch.read_in_portions() if in_portions else fetch.read()
    # An append to a partition that was read in an earlier turn has woken nothing.
    if in_portions and size < fetch.min_bytes and not fetch.immediate and fetch.has_grown():
        fetch.drop()
        size = await fetch.read_in_portions()
        if fetch.has_grown():
            return fetch.response()
    # As in Kafka, an unknown topic alone doesn't end the wait, unless there is nothing to wait for.
    if fetch.immediate or size >= fetch.min_bytes or max_wait_ms <= 0 or not fetch.readable:
        return fetch.response()
    if not sessions.may_wait(context):
        # As if its time were up: those that wait have as many partitions as are allowed.
        return fetch.response()
    places = fetch.places()
    fetch.drop()
    try:
        await until_grown(ctx, places, fetch.min_bytes - size, max_wait_ms)
    finally:
        sessions.has_waited(context)
    if in_portions:
        await fetch.read_in_portions()
    else:
        fetch.read()
    return fetch.response()


def _takes_turns(request: FetchRequest, context: FetchContext, replica_id: int) -> bool:
    """Whether very many partitions are read. A follower that names few has nothing new of the others."""
    if len(context.partitions) <= MANY:
        return False
    if replica_id < 0 or not context.incremental:
        return True
    return sum(len(topic.partitions) for topic in request.topics) > MANY


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
