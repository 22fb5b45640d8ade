"""AddPartitionsToTxn: make partitions part of a transaction, or verify that they are.

Clients send versions 0 to 3 for one transaction, brokers 4 and 5 for several (KIP-890). 3 is flexible. With
``verify_only`` nothing is added: a partition that isn't part of the transaction gets TRANSACTION_ABORTABLE, which
version 4 doesn't have yet.
If one partition is refused, none is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ottla_broker.api_parts.transactions import add_partitions, producer_error
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.transaction.metadata import (
    TRANSACTION_VERSION_2,
    Producer,
    TopicPartition,
)
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, TOPIC, TRANSACTIONAL_ID, WRITE, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result, Running, abandon_all, if_left
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


async def handle(ctx: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
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
    # Each is begun before any is waited for, and then they end together.
    begun = [Running(_errors(ctx, transaction)).start() for transaction in transactions]
    with if_left(partial(abandon_all, begun)):
        errors = [await each for each in begun]
    return _response(
        ctx,
        [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_results(transaction.topics, codes_of),
            )
            for transaction, codes_of in zip(transactions, errors, strict=True)
        ],
    )


async def _errors(
    ctx: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> Mapping[TopicPartition, int]:
    """Add or verify the partitions of one transaction; returns an error code for each."""
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    errors = _check(ctx, transaction.transactional_id, partitions)
    if errors is not None:
        return errors
    coordinator = ctx.services.transactions
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        error, missing = coordinator.verify_partitions(transaction.transactional_id, producer, partitions)
        if error != codes.NONE:
            return dict.fromkeys(partitions, error)
        lacks = codes.TRANSACTION_ABORTABLE if ctx.version >= _HAS_ABORTABLE else codes.INVALID_TXN_STATE
        return {each: lacks if each in missing else codes.NONE for each in partitions}
    if ctx.version < _BETWEEN_BROKERS:
        error = await add_partitions(
            ctx, ApiKey.ADD_PARTITIONS_TO_TXN, transaction.transactional_id, producer, partitions
        )
    else:
        # A leader asks on behalf of a client of version 2, and asks again if this comes too early.
        added: Result[int] = Result()
        coordinator.add_partitions(
            transaction.transactional_id,
            producer,
            partitions,
            added.give,
            client_version=TRANSACTION_VERSION_2,
        )
        error = await added
    return dict.fromkeys(partitions, producer_error(error, ctx.version >= _HAS_FENCED))


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
