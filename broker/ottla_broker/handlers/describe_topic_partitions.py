"""DescribeTopicPartitions: topics' partitions, one page at a time (KIP-966).

An empty list asks for all topics. Topics are sorted by name. A page has at most as many partitions as the request and
max.request.partition.size.limit allow, and its cursor says where the next page begins. There are no eligible leader
replicas except those in sync.
"""

from __future__ import annotations

from ottla_broker.log.names import is_topic_name
from ottla_broker.metadata.cache import ClientTopic
from ottla_broker.requests.api import DESCRIBE, TOPIC, Api
from ottla_broker.requests.context import NOT_ASKED, RequestContext
from ottla_broker.requests.inline import pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import describe_topic_partitions as wire

API = Api(75, (0, 0), needs={TOPIC: DESCRIBE}, describes_cluster=True)


async def handle(
    ctx: RequestContext, request: wire.DescribeTopicPartitionsRequest
) -> wire.DescribeTopicPartitionsResponse:
    metadata = ctx.services.metadata
    metadata.check_brokers()
    cursor = request.cursor
    all_topics = not request.topics
    asked = {topic.name for topic in request.topics}
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return _refuse(asked)
    first = "" if cursor is None else cursor.topic_name
    names = {info.name for info in metadata.topics()} if all_topics else asked
    sees = ctx.shows if all_topics else ctx.authorize
    forbidden = set()
    for number, name in enumerate(list(names)):
        if not sees(AclResource.TOPIC, name):
            forbidden.add(name)
        if number % 100 == 0:
            await pause(50)
    if all_topics:
        names -= forbidden
    room = max(min(ctx.services.config.max_request_partition_size_limit, request.response_partition_limit), 1)
    response = wire.DescribeTopicPartitionsResponse()
    for name in sorted(name for name in names if name >= first):
        await pause(1)
        start = 0 if cursor is None or name != first else cursor.partition_index
        if room == 0:
            response.next_cursor = wire.ResponseCursor(topic_name=name, partition_index=start)
            break
        if name in forbidden:
            response.topics.append(_failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_ASKED))
            continue
        topic = metadata.client_topic(name)
        if topic is None:
            legal = is_topic_name(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(_failed(name, code, ctx.operations(AclResource.TOPIC, name)))
            await pause(10)
            continue
        info = topic.info
        end = min(start + room, len(info.partitions))
        response.topics.append(_topic(ctx, topic, start, end))
        room -= max(end - start, 0)
        await pause(max(end - start, 0))
        if end < len(info.partitions):
            response.next_cursor = wire.ResponseCursor(topic_name=name, partition_index=end)
            break
    return response


def _topic(
    ctx: RequestContext, topic: ClientTopic, start: int, end: int
) -> wire.DescribeTopicPartitionsResponseTopic:
    info = topic.info
    return wire.DescribeTopicPartitionsResponseTopic(
        name=info.name,
        topic_id=info.topic_id,
        is_internal=info.internal,
        partitions=[_partition(topic, i) for i in range(start, end) if i in info.partitions],
        topic_authorized_operations=ctx.operations(AclResource.TOPIC, info.name),
    )


def _partition(topic: ClientTopic, index: int) -> wire.DescribeTopicPartitionsResponsePartition:
    info = topic.info.partitions[index]
    return wire.DescribeTopicPartitionsResponsePartition(
        error_code=topic.error(index),
        partition_index=index,
        leader_id=topic.leaders[index],
        leader_epoch=info.leader_epoch,
        replica_nodes=list(info.replicas),
        isr_nodes=list(info.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=list(info.offline),
    )


def _failed(name: str, code: ErrorCode, operations: int) -> wire.DescribeTopicPartitionsResponseTopic:
    return wire.DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_authorized_operations=operations
    )


def _refuse(names: set[str]) -> wire.DescribeTopicPartitionsResponse:
    """Refuse a cursor with a negative partition or a topic that wasn't requested."""
    return wire.DescribeTopicPartitionsResponse(
        topics=[
            wire.DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)
            for name in sorted(names)
        ]
    )
