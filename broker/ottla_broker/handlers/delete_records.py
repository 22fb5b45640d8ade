"""DeleteRecords, versions 0-2: everything before an offset goes (KIP-107); -1 is everything that is committed."""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        answers = []
        info = ctx.broker.metadata.topic(topic.name)
        for asked in topic.partitions:
            answer = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            answers.append(answer)
            try:
                partition = ctx.broker.replicas.partition(topic.name, asked.partition_index)
                if partition is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if info is not None and info.internal:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                answer.low_watermark = partition.delete_records(asked.offset)
            except KafkaError as error:
                answer.error_code = error.code
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    return DeleteRecordsResponse(topics=topics)
