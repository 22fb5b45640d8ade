"""WriteTxnMarkers: append the markers that end transactions.

Transaction coordinators send it to the partitions' leaders, and so do tools that abort a hanging transaction (KIP-664).
It is answered when all in-sync replicas have the markers.
"""

from __future__ import annotations

from functools import partial

from ottla_broker.log.heard_connections import Arrival
from ottla_broker.replica.partition import Partition
from ottla_broker.replica.txn_markers import MarkerErrors, TxnMarker
from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result
from ottla_broker.requests.late_requests import late
from ottla_protocol.acls import CLUSTER_NAME, AclOperation, AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

API = Api(
    27,
    (0, 2),
    senders="brokers and tools",
    coordinated=True,
    # ALTER is enough, for tools that abort a hanging transaction.
    needs={CLUSTER: CLUSTER_ACTION},
    memory=MiB // 2,
    is_carried_out=True,
)


async def handle(ctx: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    markers = [
        TxnMarker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes],
            marker.transaction_version,
        )
        for marker in request.markers
    ]
    if not _is_authorized(ctx):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _response(markers, [dict.fromkeys(marker.partitions, refused) for marker in markers])
    _refuse_late(ctx, markers)
    # The markers are in effect even if the coordinator doesn't wait.
    written: Result[list[MarkerErrors]] = Result()
    ctx.services.txn_markers.write(markers, written.give, partial(_is_late, ctx))
    return _response(markers, await written)


def _refuse_late(ctx: RequestContext, markers: list[TxnMarker]) -> None:
    """Refuse markers that would end a later transaction than theirs (decision 9).

    Raises CloseConnection: a coordinator sends again on a new connection what is still missing.
    """
    for marker in markers:
        for topic, index in marker.partitions:
            partition = ctx.services.replicas.partition(topic, index)
            if partition is not None and _is_late(ctx, marker, partition):
                raise late(f"the coordinator of producer {marker.producer_id}")


def _is_late(ctx: RequestContext, marker: TxnMarker, partition: Partition) -> bool:
    arrival = partition.hear_marker(marker.producer_id, marker.coordinator_epoch, ctx.connection.age)
    return arrival is not Arrival.TIMELY


def _is_authorized(ctx: RequestContext) -> bool:
    authorizer, client = ctx.services.authorizer, ctx.connection
    return authorizer.authorize(
        client, AclOperation.ALTER, AclResource.CLUSTER, CLUSTER_NAME
    ) or ctx.authorize(AclResource.CLUSTER)


def _response(markers: list[TxnMarker], errors: list[MarkerErrors]) -> WriteTxnMarkersResponse:
    """The errors by producer id: of two markers for one producer, the later one's count."""
    by_producer: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker, codes in zip(markers, errors, strict=True):
        topics = by_producer.setdefault(marker.producer_id, {})
        for (topic, index), code in codes.items():
            topics.setdefault(topic, {})[index] = code
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index, code in partitions.items()
                        ],
                    )
                    for name, partitions in topics.items()
                ],
            )
            for producer_id, topics in by_producer.items()
        ]
    )
