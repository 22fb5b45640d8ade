"""Produce of very many partitions, or of many logs to open, takes turns with everything else on the event loop.

Each portion of the partitions is served like a request of its own, from a copy of its records, and the answers are
joined. Nothing is read from the connection until all portions are appended, so that its requests keep their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.slow_produce import Awaited
from ottla_broker.handlers.turns import OPENED, OPENED_AT_ONCE, Steps
from ottla_broker.network.pending_response import CloseConnection, PendingResponse
from ottla_protocol.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData

PORTION: Final = 100
"""Partitions that are appended at a time."""
_WORK: Final = 5
"""The work of appending to a partition, in elements of a handler."""

_Serve: TypeAlias = "Callable[[RequestContext, ProduceRequest], Any]"


class _Portion(NamedTuple):
    """Some of a request's partitions. ``continues``: the first topic is the last one of the portion before."""

    request: ProduceRequest
    partitions: int
    continues: bool


def steps(ctx: RequestContext, request: ProduceRequest, serve: _Serve, opens_many: bool) -> Steps[Any]:
    """Serve ``request`` in portions by ``serve``, the handler of smaller ones.

    ``opens_many``: whether it has many logs to open.
    """
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                # The request's buffer is used again before the last portion's turn.
                data.records = memoryview(bytearray(data.records))
    portions, answers = [], []
    for portion in _portions(request, OPENED_AT_ONCE if opens_many else PORTION):
        work = _WORK * portion.partitions + OPENED * count_closed(ctx, portion.request)
        portions.append(portion)
        answers.append(_served(ctx, portion.request, serve))
        yield work
    if all(isinstance(answer, ProduceResponse) for answer in answers):
        return _join(portions, answers)
    return _join_later(portions, answers)


def count_closed(ctx: RequestContext, request: ProduceRequest) -> int:
    """Return the number of logs that the request has to open."""
    return ctx.services.replicas.count_closed(
        (topic.name, data.index) for topic in request.topic_data for data in topic.partition_data
    )


def _portions(request: ProduceRequest, most: int) -> Iterator[_Portion]:
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
                yield _Portion(_like(request, topics), most - room, continues)
                topics, room = [], most
                continues = start < len(parts)
            if start >= len(parts):
                break
    if topics:
        yield _Portion(_like(request, topics), most - room, continues)


def _like(request: ProduceRequest, topics: list[TopicProduceData]) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=topics,
    )


def _served(ctx: RequestContext, request: ProduceRequest, serve: _Serve) -> Any:
    """The answer, a future of it, or the reason to close the connection."""
    try:
        answer = serve(ctx, request)
    except CloseConnection as error:
        # Without its traceback, which would hold the request.
        return error.with_traceback(None)
    if not hasattr(answer, "__await__"):
        return answer
    task = asyncio.ensure_future(answer)
    # Its connection may close before anything waits for it.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def _join_later(portions: list[_Portion], answers: list[Any]) -> ProduceResponse | None:
    """Wait for all answers. Raises the first CloseConnection: a request without acks has no other answer."""
    failure: CloseConnection | None = None
    responses: list[ProduceResponse] = []
    for answer in answers:
        response = answer
        try:
            if isinstance(answer, PendingResponse):
                response = await Awaited(answer).wait()
            elif isinstance(answer, asyncio.Future):
                response = await answer
        except CloseConnection as error:
            response = error
        if isinstance(response, CloseConnection):
            failure = failure or response
        elif response is not None:
            responses.append(response)
    if failure is not None:
        raise failure
    return _join(portions, responses) if responses else None


def _join(portions: list[_Portion], responses: list[ProduceResponse]) -> ProduceResponse:
    joined: list[Any] = []
    for portion, response in zip(portions, responses, strict=True):
        topics = response.responses
        if portion.continues:
            joined[-1].partition_responses += topics[0].partition_responses
            topics = topics[1:]
        joined += topics
    return ProduceResponse(responses=joined)
