"""AddPartitionsToTxn: make partitions part of a transaction, or verify that they are.

Clients send versions 0 to 3 for one transaction, brokers 4 and 5 for several (KIP-890). 3 is flexible. With
``verify_only`` nothing is added: a partition that isn't part of the transaction gets TRANSACTION_ABORTABLE, which
version 4 doesn't have yet.
If one partition is refused, none is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.transaction.metadata import (
    TRANSACTION_VERSION_2,
    Producer,
    TopicPartition,
)
from ottla_broker.handlers.api import CLUSTER, CLUSTER_ACTION, TOPIC, TRANSACTIONAL_ID, WRITE, Api, MiB
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.transactions import add_partitions, producer_error
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_broker.network.pending_response import PendingResponse
from ottla_protocol.acls import AclResource
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

API = Api(
    24,
    (0, 5),
    senders="clients and brokers",
    coordinated=True,
    # Clients need the transactional id and the topics, brokers the cluster.
    needs={TRANSACTIONAL_ID: WRITE, TOPIC: WRITE, CLUSTER: CLUSTER_ACTION},
    memory=MiB,
)

_BETWEEN_BROKERS = 4
_HAS_FENCED = 2
_HAS_ABORTABLE = 5


def handle(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | PendingResponse:
    if ctx.version < _BETWEEN_BROKERS:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    elif ctx.authorize(AclResource.CLUSTER):
        transactions = request.transactions
    else:
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    results: list[AddPartitionsToTxnResult | None] = [None] * len(transactions)
    pending = PendingResponse()
    waiting = len(transactions)

    def answered(index: int, errors: Mapping[TopicPartition, int]) -> None:
        nonlocal waiting
        asked = transactions[index]
        results[index] = AddPartitionsToTxnResult(
            transactional_id=asked.transactional_id, topic_results=_results(asked.topics, errors)
        )
        waiting -= 1
        if not waiting:
            pending.complete(_response(ctx, [each for each in results if each is not None]))

    if not transactions:
        return _response(ctx, [])
    for index, transaction in enumerate(transactions):
        _serve(ctx, transaction, partial(answered, index), pending)
    return pending


def _serve(
    ctx: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    answered: partial[None],
    pending: PendingResponse,
) -> None:
    """Call ``answered`` with an error code for each partition."""
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    errors = _check(ctx, transaction.transactional_id, partitions)
    if errors is not None:
        answered(errors)
        return
    coordinator = ctx.services.transactions
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        error, missing = coordinator.verify_partitions(transaction.transactional_id, producer, partitions)
        if error != codes.NONE:
            answered(dict.fromkeys(partitions, error))
        else:
            lacks = codes.TRANSACTION_ABORTABLE if ctx.version >= _HAS_ABORTABLE else codes.INVALID_TXN_STATE
            answered({each: lacks if each in missing else codes.NONE for each in partitions})
        return

    def reply(error: int) -> None:
        answered(dict.fromkeys(partitions, producer_error(error, ctx.version >= _HAS_FENCED)))

    if ctx.version < _BETWEEN_BROKERS:
        add_partitions(
            ctx,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            transaction.transactional_id,
            producer,
            partitions,
            reply,
            pending,
        )
    else:
        # A leader asks on behalf of a client of version 2, and asks again if this comes too early.
        coordinator.add_partitions(
            transaction.transactional_id,
            producer,
            partitions,
            reply,
            client_version=TRANSACTION_VERSION_2,
        )


def _check(
    ctx: RequestContext, transactional_id: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int] | None:
    """An error code for each partition if one of them can't be added; None: all can."""
    from_client = ctx.version < _BETWEEN_BROKERS
    if from_client and not ctx.authorize(AclResource.TRANSACTIONAL_ID, transactional_id):
        return dict.fromkeys(partitions, int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    services = ctx.services
    if not services.knows_cluster:
        return dict.fromkeys(partitions, codes.COORDINATOR_LOAD_IN_PROGRESS)
    errors: dict[TopicPartition, int] = {}
    for each in partitions:
        name, index = each
        info = services.metadata.topic(name)
        if from_client and (name in INTERNAL_TOPICS or not ctx.authorize(AclResource.TOPIC, name)):
            errors[each] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif info is None or index not in info.partitions:
            errors[each] = codes.UNKNOWN_TOPIC_OR_PARTITION
    if not errors:
        return None
    return {each: errors.get(each, int(ErrorCode.OPERATION_NOT_ATTEMPTED)) for each in partitions}


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, int]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[topic.name, index]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _response(ctx: RequestContext, results: list[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
    if ctx.version >= _BETWEEN_BROKERS:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
