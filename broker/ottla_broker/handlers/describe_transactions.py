"""DescribeTransactions: the transactional ids that this broker coordinates, by name (KIP-664)."""

from __future__ import annotations

from ottla_broker.requests.api import DESCRIBE, LISTS, TOPIC, TRANSACTIONAL_ID, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_broker.security.authorization import DENIED
from ottla_protocol.acls import AclResource
from ottla_protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

API = Api(65, (0, 0), coordinated=True, needs={TRANSACTIONAL_ID: DESCRIBE, TOPIC: DESCRIBE}, answer=LISTS)


async def handle(ctx: RequestContext, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    states = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        states.append(_describe(ctx, transactional_id))
        await pause(1 + len(states[-1].topics))
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(ctx: RequestContext, transactional_id: str) -> TransactionState:
    if not ctx.authorize(AclResource.TRANSACTIONAL_ID, transactional_id):
        return TransactionState(
            transactional_id=transactional_id, error_code=DENIED[AclResource.TRANSACTIONAL_ID]
        )
    found = ctx.services.transactions.describe(transactional_id)
    metadata = found.metadata
    if metadata is None:
        return TransactionState(transactional_id=transactional_id, error_code=found.error)
    topics: dict[str, TopicData] = {}
    for name, index in found.partitions:
        topics.setdefault(name, TopicData(topic=name)).partitions.append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.value,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[topic for name, topic in topics.items() if ctx.shows(AclResource.TOPIC, name)],
    )
