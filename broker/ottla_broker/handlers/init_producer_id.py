"""InitProducerId, versions 0-5: a producer id for an idempotent producer.

A producer without a transactional id always gets a new id with epoch 0, even if it names its old one (KIP-360 lets only
transactional producers keep theirs). Transactions aren't built yet: a transactional id is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(
    ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id == "":
        return _error(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _error(ErrorCode.INVALID_REQUEST)
    return _allocate(ctx)


async def _allocate(ctx: RequestContext) -> InitProducerIdResponse:
    try:
        producer_id = await ctx.services.controller.next_producer_id()
    except KafkaError as error:
        return _error(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
