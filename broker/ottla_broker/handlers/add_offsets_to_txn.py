"""AddOffsetsToTxn: a transaction is about to commit offsets of a group.

The group's partition of ``__consumer_offsets`` becomes part of the transaction. Version 2 has PRODUCER_FENCED, 3 is
flexible, 4 has TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla_broker.api_parts.transactions import add_partitions, producer_error
from ottla_broker.coordinator.transaction.metadata import Producer
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_broker.requests.api import GROUP, READ, TRANSACTIONAL_ID, WRITE, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorization import DENIED
from ottla_protocol.acls import AclResource
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

API = Api(25, (0, 4), coordinated=True, needs={TRANSACTIONAL_ID: WRITE, GROUP: READ})

_HAS_FENCED = 2


async def handle(ctx: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    for resource, name in (
        (AclResource.TRANSACTIONAL_ID, request.transactional_id),
        (AclResource.GROUP, request.group_id),
    ):
        if not ctx.authorize(resource, name):
            return AddOffsetsToTxnResponse(error_code=DENIED[resource])
    producer = Producer(request.producer_id, request.producer_epoch)
    partitions = {(OFFSETS_TOPIC, ctx.services.groups.partition_for(request.group_id))}
    error = await add_partitions(
        ctx, ApiKey.ADD_OFFSETS_TO_TXN, request.transactional_id, producer, partitions
    )
    return AddOffsetsToTxnResponse(error_code=producer_error(error, ctx.version >= _HAS_FENCED))
