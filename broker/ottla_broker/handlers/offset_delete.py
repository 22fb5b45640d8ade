"""OffsetDelete: delete a group's committed offsets (KIP-496).

In a group with members, only offsets of topics to which no member is subscribed.
"""

from __future__ import annotations

from ottla_broker.requests.api import DELETE, GROUP, READ, TOPIC, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result, pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import offset_delete as wire

API = Api(47, (0, 0), coordinated=True, needs={GROUP: DELETE, TOPIC: READ}, gate=GROUP)

_NONE = int(ErrorCode.NONE)
_FORBIDDEN = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_UNKNOWN_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def handle(ctx: RequestContext, request: wire.OffsetDeleteRequest) -> wire.OffsetDeleteResponse:
    asked: list[tuple[str, int]] = []
    existing: list[tuple[str, int]] = []
    forbidden: set[str] = set()
    for topic in request.topics:
        if not ctx.authorize(AclResource.TOPIC, topic.name):
            forbidden.add(topic.name)
        info = ctx.services.metadata.topic(topic.name)
        known = () if info is None else info.partitions
        await pause(1)
        for partition in topic.partitions:
            await pause(1)
            key = (topic.name, partition.partition_index)
            asked.append(key)
            if partition.partition_index in known and topic.name not in forbidden:
                existing.append(key)
    deleted: Result[tuple[int, dict[tuple[str, int], int]]] = Result()
    ctx.services.groups.delete_offsets(
        request.group_id, existing, lambda error, codes: deleted.give((error, codes))
    )
    error, codes = await deleted
    if error != _NONE:
        return wire.OffsetDeleteResponse(error_code=error)
    topics: dict[str, wire.OffsetDeleteResponseTopic] = {}
    for name, index in dict.fromkeys(asked):
        answer = topics.setdefault(name, wire.OffsetDeleteResponseTopic(name=name, partitions=[]))
        code = codes.get((name, index), _FORBIDDEN if name in forbidden else _UNKNOWN_PARTITION)
        answer.partitions.append(wire.OffsetDeleteResponsePartition(partition_index=index, error_code=code))
    return wire.OffsetDeleteResponse(topics=list(topics.values()))
