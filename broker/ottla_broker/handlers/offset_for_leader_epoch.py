"""OffsetForLeaderEpoch: the end of a leader epoch, to truncate a diverging log (KIP-101, KIP-320)."""

from __future__ import annotations

from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, DESCRIBE, TOPIC, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_broker.requests.turns import OPENED
from ottla_protocol.errors import KafkaError
from ottla_protocol.messages import offset_for_leader_epoch as wire

API = Api(23, (0, 4), senders="clients and brokers", needs={TOPIC: DESCRIBE, CLUSTER: CLUSTER_ACTION})


async def handle(
    ctx: RequestContext, request: wire.OffsetForLeaderEpochRequest
) -> wire.OffsetForLeaderEpochResponse:
    replica_id = ctx.checked_replica(request.replica_id)
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            work = 1
            answer = wire.EpochEndOffset(partition=asked.partition)
            answers.append(answer)
            try:
                partition = ctx.partition(topic.topic, asked.partition, replica_id)
                work = 1 if partition.is_open else OPENED
                partition.check_readable(asked.current_leader_epoch, any_replica=False)
                answer.leader_epoch, answer.end_offset = partition.log.epoch_end_offset(asked.leader_epoch)
            except KafkaError as error:
                answer.error_code = error.code
            await pause(work)
        await pause(1)
        topics.append(wire.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return wire.OffsetForLeaderEpochResponse(topics=topics)
