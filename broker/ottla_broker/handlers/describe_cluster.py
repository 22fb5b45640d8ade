"""DescribeCluster: the cluster's id, its controller and its brokers.

Version 1 can ask for controllers instead of brokers (KIP-919), which a broker's endpoint refuses.
"""

from __future__ import annotations

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext, cluster_operations
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

# Nothing is needed; DESCRIBE on the cluster shows the operations on it.
API = Api(60, (0, 1), describes_cluster=True)

_BROKERS, _CONTROLLERS = 1, 2


async def handle(ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of"
            " type CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    metadata = ctx.services.metadata
    brokers = []
    for broker in metadata.brokers.values():
        reached = broker.listeners.get(ctx.connection.listener)
        if reached is not None:
            host, port = reached
            brokers.append(DescribeClusterBroker(broker_id=broker.id, host=host, port=port, rack=broker.rack))
    return DescribeClusterResponse(
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        brokers=brokers,
        cluster_authorized_operations=cluster_operations(ctx, request.include_cluster_authorized_operations),
    )
