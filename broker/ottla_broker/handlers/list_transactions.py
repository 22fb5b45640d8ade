"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

Version 1 selects by the time since a transaction began (KIP-994).
"""

from __future__ import annotations

from ottla_broker.requests.api import DESCRIBE, LISTS, TRANSACTIONAL_ID, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_protocol.acls import AclResource
from ottla_protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

API = Api(66, (0, 1), coordinated=True, needs={TRANSACTIONAL_ID: DESCRIBE}, answer=LISTS)

_PORTION = 100


async def handle(ctx: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    error, unknown, found = ctx.services.transactions.list(
        request.state_filters, frozenset(request.producer_id_filters), request.duration_filter
    )
    states = []
    for done, each in enumerate(found, 1):
        if each is not None and ctx.shows(AclResource.TRANSACTIONAL_ID, each.transactional_id):
            states.append(
                TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state,
                )
            )
        if done % _PORTION == 0:
            await pause(_PORTION // 2)
    return ListTransactionsResponse(
        error_code=error, unknown_state_filters=unknown, transaction_states=states
    )
