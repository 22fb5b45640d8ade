"""AlterPartitionReassignments: move partitions to other replicas (KIP-455).

Only the controller serves it. Null replicas cancel a move.
"""

from __future__ import annotations

from ottla_broker.requests.api import ALTER, CLUSTER, Api, MiB
from ottla_broker.requests.context import RequestContext, client_timeout
from ottla_broker.requests.inline import in_task
from ottla_protocol.errors import KafkaError
from ottla_protocol.messages import alter_partition_reassignments as wire

API = Api(45, (0, 0), needs={CLUSTER: ALTER}, gate=CLUSTER, memory=2 * MiB)


async def handle(
    ctx: RequestContext, request: wire.AlterPartitionReassignmentsRequest
) -> wire.AlterPartitionReassignmentsResponse:
    wanted = {(t.name, each.partition_index): each.replicas for t in request.topics for each in t.partitions}
    try:
        outcomes = await in_task(
            ctx.services.controller.alter_reassignments(wanted, client_timeout(request.timeout_ms))
        )
    except KafkaError as error:
        return wire.AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    topics: dict[str, wire.ReassignableTopicResponse] = {}
    for (name, index), outcome in outcomes.items():
        topic = topics.setdefault(name, wire.ReassignableTopicResponse(name=name, partitions=[]))
        topic.partitions.append(
            wire.ReassignablePartitionResponse(
                partition_index=index, error_code=outcome.error, error_message=outcome.message
            )
        )
    return wire.AlterPartitionReassignmentsResponse(error_message=None, responses=list(topics.values()))
