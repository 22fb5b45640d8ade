"""DeleteRecords, versions 0-2: everything before an offset goes (KIP-107); -1 is everything that is committed.

The answer waits until the followers that are alive have let go of the records as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    _Waits = list[tuple[DeleteRecordsPartitionResult, asyncio.Future[int]]]


def handle(
    ctx: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    topics = []
    waits: _Waits = []
    for topic in request.topics:
        answers = []
        info = ctx.services.metadata.topic(topic.name)
        for asked in topic.partitions:
            answer = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            answers.append(answer)
            try:
                partition = ctx.partition(topic.name, asked.partition_index)
                if info is not None and info.internal:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                answer.low_watermark = partition.delete_records(asked.offset)
                wait = partition.deleted(answer.low_watermark, request.timeout_ms)
                if wait is not None:
                    waits.append((answer, wait))
            except KafkaError as error:
                answer.error_code = error.code
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    response = DeleteRecordsResponse(topics=topics)
    return _answer_later(response, waits) if waits else response


async def _answer_later(response: DeleteRecordsResponse, waits: _Waits) -> DeleteRecordsResponse:
    for answer, wait in waits:
        try:
            answer.low_watermark = await wait
        except KafkaError as error:
            answer.error_code = error.code
            answer.low_watermark = -1
    return response
