"""DeleteRecords: delete all records before an offset (KIP-107); -1 means the high watermark.

The response waits until all live followers have deleted the records too.
"""

from __future__ import annotations

from ottla_broker.replica.delayed_produce import Awaited
from ottla_broker.requests.api import DELETE, TOPIC, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_broker.requests.turns import OPENED
from ottla_broker.requests.waits import until_reached
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import delete_records as wire

API = Api(21, (0, 2), needs={TOPIC: DELETE})


async def handle(ctx: RequestContext, request: wire.DeleteRecordsRequest) -> wire.DeleteRecordsResponse:
    topics = []
    waiting: list[wire.DeleteRecordsPartitionResult] = []
    awaited: list[Awaited] = []
    for topic in request.topics:
        if not topic.partitions:  # Kafka leaves it out
            await pause(1)
            continue
        answers = []
        info = ctx.services.metadata.topic(topic.name)
        for asked in topic.partitions:
            work = 5
            answer = wire.DeleteRecordsPartitionResult(
                partition_index=asked.partition_index, low_watermark=-1
            )
            answers.append(answer)
            try:
                partition = ctx.partition(topic.name, asked.partition_index)
                work = 5 if partition.is_open else OPENED
                if info is not None and info.internal:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                answer.low_watermark = partition.delete_records(asked.offset)
                if not partition.is_deleted(answer.low_watermark):
                    waiting.append(answer)
                    awaited.append(Awaited(partition.when_deleted, answer.low_watermark))
            except KafkaError as error:
                answer.error_code = error.code
            await pause(work)
        await pause(1)
        topics.append(wire.DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    response = wire.DeleteRecordsResponse(topics=topics)
    if not awaited:
        return response

    outcomes = await until_reached(ctx, awaited, request.timeout_ms)
    for answer, outcome in zip(waiting, outcomes, strict=True):
        answer.error_code = outcome.error
        answer.low_watermark = outcome.offset
    return response
