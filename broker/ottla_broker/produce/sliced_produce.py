"""Produce of very many partitions, or of many logs to open: the portions of the request, and their answers joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.requests.inline import Running
from ottla_protocol.messages.produce import (
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

PORTION: Final = 100
"""Partitions that are appended at a time."""
WORK: Final = 5
"""The work of appending to a partition, in elements of a handler."""


def portions(request: ProduceRequest, most: int) -> Iterator[ProduceRequest]:
    """The request in portions of at most so many partitions."""
    topics: list[TopicProduceData] = []
    room = most
    for topic in request.topic_data:
        start, parts = 0, topic.partition_data
        while start < len(parts):
            some = parts[start : start + room]
            topics.append(TopicProduceData(name=topic.name, partition_data=some))
            start += len(some)
            room -= len(some)
            if not room:
                yield _like(request, topics)
                topics, room = [], most
    if topics:
        yield _like(request, topics)


def _like(request: ProduceRequest, topics: list[TopicProduceData]) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=topics,
    )


async def join(answers: Sequence[Running[ProduceResponse | None]]) -> ProduceResponse | None:
    """The answer to the whole, from that to each portion.

    Raises the first CloseConnection: a request without acks has no other answer.
    """
    failure: CloseConnection | None = None
    joined: dict[str, TopicProduceResponse] = {}
    for running in answers:
        try:
            response = await running
        except CloseConnection as error:
            failure = failure or error
            continue
        for topic in response.responses if response is not None else ():
            whole = joined.setdefault(topic.name, topic)
            if whole is not topic:
                whole.partition_responses += topic.partition_responses
    if failure is not None:
        raise failure
    return ProduceResponse(responses=list(joined.values())) if joined else None
