"""AlterPartitionReassignments (key 45), version 0: move partitions to other replicas (KIP-455).

Only the controller serves it. Null replicas cancel a move.
"""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext, client_timeout
from ottla_protocol.errors import KafkaError
from ottla_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    wanted = {(t.name, each.partition_index): each.replicas for t in request.topics for each in t.partitions}
    try:
        outcomes = await ctx.services.controller.alter_reassignments(
            wanted, client_timeout(request.timeout_ms)
        )
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    topics: dict[str, ReassignableTopicResponse] = {}
    for (name, index), outcome in outcomes.items():
        topic = topics.setdefault(name, ReassignableTopicResponse(name=name, partitions=[]))
        topic.partitions.append(
            ReassignablePartitionResponse(
                partition_index=index, error_code=outcome.error, error_message=outcome.message
            )
        )
    return AlterPartitionReassignmentsResponse(error_message=None, responses=list(topics.values()))
