"""DescribeProducers: the producers that a partition remembers, and their open transactions (KIP-664)."""

from __future__ import annotations

from typing import Final

from ottla_broker.controller.validation import check_topic_name
from ottla_broker.requests.api import LISTS, READ, TOPIC, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_broker.requests.turns import OPENED
from ottla_protocol.errors import KafkaError
from ottla_protocol.messages import describe_producers as wire

API = Api(61, (0, 0), needs={TOPIC: READ}, memory=MiB, answer=LISTS)

_PORTION: Final = 200
"""A partition may have thousands of producers."""


async def handle(
    ctx: RequestContext, request: wire.DescribeProducersRequest
) -> wire.DescribeProducersResponse:
    topics = []
    for topic in request.topics:
        answers = []
        # A partition that is named twice is described once.
        for index in dict.fromkeys(topic.partition_indexes):
            work = 1
            answer = wire.PartitionResponse(partition_index=index)
            answers.append(answer)
            try:
                check_topic_name(topic.name)
                partition = ctx.partition(topic.name, index)
                work = 1 if partition.is_open else OPENED
                partition.check_readable(-1, any_replica=True)
                for p in list(partition.log.producers.producers.values()):
                    if len(answer.active_producers) % _PORTION == _PORTION - 1:
                        await pause(_PORTION)
                    answer.active_producers.append(
                        wire.ProducerState(
                            producer_id=p.producer_id,
                            producer_epoch=p.epoch,
                            last_sequence=p.last_sequence,
                            last_timestamp=p.last_timestamp,
                            coordinator_epoch=p.coordinator_epoch,
                            current_txn_start_offset=p.txn_first_offset,
                        )
                    )
            except KafkaError as error:
                answer.error_code = error.code
                answer.error_message = error.message
            await pause(work + len(answer.active_producers) % _PORTION)
        await pause(1)
        topics.append(wire.TopicResponse(name=topic.name, partitions=answers))
    return wire.DescribeProducersResponse(topics=topics)
