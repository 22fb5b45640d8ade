"""InitProducerId: a producer id and epoch.

A producer without a transactional id always gets a new id with epoch 0, even if it names its old one. For a
transactional id the coordinator raises the epoch, which fences older instances; from version 3 a producer may name its
id and epoch to continue after an error (KIP-360). 2 is flexible, 4 has PRODUCER_FENCED, 5 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from ottla_broker.api_parts.transactions import TRY_AGAIN, must_try_again, producer_error
from ottla_broker.coordinator.transaction.coordinator import ProducerResult
from ottla_broker.coordinator.transaction.metadata import Producer
from ottla_broker.requests.api import CLUSTER, TRANSACTIONAL_ID, WRITE, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result, in_task
from ottla_broker.security.authorization import DENIED
from ottla_protocol.acls import CLUSTER_NAME, AclOperation, AclResource
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

API = Api(
    22,
    (0, 5),
    coordinated=True,
    of_groups=False,
    # The cluster for idempotent producers, for which WRITE on any topic is enough (KIP-679); the transactional id
    # for the others.
    needs={CLUSTER: AclOperation.IDEMPOTENT_WRITE, TRANSACTIONAL_ID: WRITE},
)

_HAS_FENCED = 4


async def handle(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    transactional_id = request.transactional_id
    if transactional_id is None:
        if not _is_idempotent_writer(ctx):
            return _error(DENIED[AclResource.CLUSTER])
    elif not ctx.authorize(AclResource.TRANSACTIONAL_ID, transactional_id):
        return _error(DENIED[AclResource.TRANSACTIONAL_ID])
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _error(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return await _allocate(ctx)
    expected = None if request.producer_id == -1 else Producer(request.producer_id, request.producer_epoch)
    if must_try_again(ctx, transactional_id, expected, ApiKey.INIT_PRODUCER_ID):
        return InitProducerIdResponse(error_code=TRY_AGAIN, producer_id=-1, producer_epoch=-1)
    initialized: Result[ProducerResult] = Result()
    ctx.services.transactions.init_producer_id(
        transactional_id, request.transaction_timeout_ms, expected, initialized.give, ctx.connection.age
    )
    now = await initialized
    return InitProducerIdResponse(
        error_code=producer_error(now.error, ctx.version >= _HAS_FENCED),
        producer_id=now.producer_id,
        producer_epoch=now.producer_epoch,
    )


def _is_idempotent_writer(ctx: RequestContext) -> bool:
    """Whether the client may write to some topic, or has IDEMPOTENT_WRITE, which older versions of Kafka need."""
    return ctx.shows(AclResource.CLUSTER, CLUSTER_NAME) or ctx.services.authorizer.authorize_by_type(
        ctx.connection, AclOperation.WRITE, AclResource.TOPIC
    )


async def _allocate(ctx: RequestContext) -> InitProducerIdResponse:
    try:
        producer_id = await in_task(ctx.services.controller.next_producer_id())
    except KafkaError as error:
        return _error(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
