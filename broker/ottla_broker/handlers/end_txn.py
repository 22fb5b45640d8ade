"""EndTxn: commit or abort a transaction.

The answer says that the decision is in the log; the markers follow. Version 2 has PRODUCER_FENCED, 3 is flexible, 4 has
TRANSACTION_ABORTABLE, and 5 raises the epoch of the producer (KIP-890).
"""

from __future__ import annotations

from ottla_broker.api_parts.transactions import TRY_AGAIN, must_try_again, producer_error
from ottla_broker.coordinator.transaction.coordinator import ProducerResult
from ottla_broker.coordinator.transaction.metadata import Producer
from ottla_broker.requests.api import TRANSACTIONAL_ID, WRITE, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

API = Api(26, (0, 5), coordinated=True, needs={TRANSACTIONAL_ID: WRITE}, gate=TRANSACTIONAL_ID)

_HAS_FENCED = 2
_RAISES_EPOCH = 5


async def handle(ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    producer = Producer(request.producer_id, request.producer_epoch)
    if must_try_again(ctx, request.transactional_id, producer, ApiKey.END_TXN):
        return EndTxnResponse(error_code=TRY_AGAIN)
    transactions = ctx.services.transactions
    if ctx.version >= _RAISES_EPOCH:
        raised: Result[ProducerResult] = Result()
        transactions.end_with_bump(request.transactional_id, producer, request.committed, raised.give)
        now = await raised
        return EndTxnResponse(
            error_code=now.error, producer_id=now.producer_id, producer_epoch=now.producer_epoch
        )
    ended: Result[int] = Result()
    transactions.end(request.transactional_id, producer, request.committed, ended.give)
    return EndTxnResponse(error_code=producer_error(await ended, ctx.version >= _HAS_FENCED))
