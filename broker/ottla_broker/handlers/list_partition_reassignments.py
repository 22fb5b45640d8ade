"""ListPartitionReassignments: the moves under way (KIP-455). Only the controller serves it.

Null topics ask for all moves.
"""

from __future__ import annotations

from ottla_broker.requests.api import CLUSTER, DESCRIBE, Api, MiB
from ottla_broker.requests.context import RequestContext, client_timeout
from ottla_broker.requests.inline import in_task
from ottla_protocol.errors import KafkaError
from ottla_protocol.messages import list_partition_reassignments as wire

API = Api(46, (0, 0), needs={CLUSTER: DESCRIBE}, gate=CLUSTER, memory=2 * MiB)


async def handle(
    ctx: RequestContext, request: wire.ListPartitionReassignmentsRequest
) -> wire.ListPartitionReassignmentsResponse:
    asked = request.topics
    wanted = None if asked is None else {(t.name, index) for t in asked for index in t.partition_indexes}
    try:
        moves = await in_task(ctx.services.controller.reassignments(client_timeout(request.timeout_ms)))
    except KafkaError as error:
        return wire.ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    topics: dict[str, wire.OngoingTopicReassignment] = {}
    for (name, index), move in moves.items():
        if wanted is None or (name, index) in wanted:
            topic = topics.setdefault(name, wire.OngoingTopicReassignment(name=name, partitions=[]))
            topic.partitions.append(
                wire.OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(move.replicas),
                    adding_replicas=list(move.adding),
                    removing_replicas=list(move.removing),
                )
            )
    return wire.ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))
