"""Produce of very many partitions, or of many logs to open: the portions of the request, and their answers joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.requests.inline import Running
from ottla_protocol.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData

PORTION: Final = 100
"""Partitions that are appended at a time."""
WORK: Final = 5
"""The work of appending to a partition, in elements of a handler."""


class Portion(NamedTuple):
    """Some of a request's partitions. ``continues``: the first topic is the last one of the portion before."""

    request: ProduceRequest
    partitions: int
    continues: bool


def portions(request: ProduceRequest, most: int) -> Iterator[Portion]:
    """The request in portions of at most so many partitions."""
    topics: list[TopicProduceData] = []
    room = most
    continues = False
    for topic in request.topic_data:
        start, parts = 0, topic.partition_data
        while True:
            some = parts[start : start + room]
            topics.append(TopicProduceData(name=topic.name, partition_data=some))
            start += len(some)
            # A topic counts, too: it may have no partitions.
            room -= max(1, len(some))
            if room <= 0:
                yield Portion(_like(request, topics), most - room, continues)
                topics, room = [], most
                continues = start < len(parts)
            if start >= len(parts):
                break
    if topics:
        yield Portion(_like(request, topics), most - room, continues)


def _like(request: ProduceRequest, topics: list[TopicProduceData]) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=topics,
    )


async def join(answers: Sequence[tuple[bool, Running[ProduceResponse | None]]]) -> ProduceResponse | None:
    """The answer to the whole, from whether each portion ``continues`` the one before, and its answer.

    Raises the first CloseConnection: a request without acks has no other answer.
    """
    failure: CloseConnection | None = None
    joined: list[Any] = []
    answered = False
    for continues, running in answers:
        try:
            response = await running
        except CloseConnection as error:
            failure = failure or error
            continue
        if response is None:
            continue
        answered = True
        topics = response.responses
        if continues and joined:
            joined[-1].partition_responses += topics[0].partition_responses
            topics = topics[1:]
        joined += topics
    if failure is not None:
        raise failure
    return ProduceResponse(responses=joined) if answered else None
