"""Produce, versions 0-2: message sets of the formats 0 and 1 are stored as batches of format 2, as in Kafka 3.9.

A request with few records is converted at once. A larger one is copied and converted on a thread; later ones of its
connection wait for it, so that their order stays. Clients of these versions may send batches of format 2 as well.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.log.up_conversion import LARGEST_SET, is_message_set, to_batch, too_large
from ottla_broker.network.pending_response import PendingResponse
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import LOG_OVERHEAD
from ottla_protocol.records.compression import DecompressedTooLargeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla_broker.handlers.context import RequestContext
    from ottla_broker.handlers.conversions import Turn
    from ottla_broker.log.config import LogConfig
    from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse

    Records = bytes | bytearray | memoryview
    Settled = dict[tuple[str, int], KafkaError | None]
    Answer = ProduceResponse | PendingResponse | None
    Append = Callable[[RequestContext, ProduceRequest, Settled], Answer]

_AT_ONCE_BYTES: Final = 64 * 1024
"""Requests of at most this many bytes of message sets are converted on the event loop, in a few milliseconds."""
_AT_ONCE_LIMIT: Final = 128 * 1024
"""The same for one message set, uncompressed."""


@dataclass(slots=True)
class _Job:
    """A partition's message set: where it is in the request, and what the partition's log asks for."""

    topic: str
    data: PartitionProduceData
    config: LogConfig
    name: str

    def convert(self, limit: int, pause: Callable[[], object] | None = None) -> bytearray | KafkaError | None:
        """The batch, the error, or None if there is nothing to append. Raises DecompressedTooLargeError.

        May run on any thread.
        """
        assert self.data.records is not None
        try:
            return to_batch(memoryview(self.data.records), self.config, self.name, limit=limit, pause=pause)
        except KafkaError as error:
            # Without its traceback, which would hold the request.
            return error.with_traceback(None)

    def settle(self, converted: bytearray | KafkaError | None, settled: Settled) -> None:
        if isinstance(converted, bytearray):
            self.data.records = memoryview(converted)
        else:
            settled[self.topic, self.data.index] = converted


def handle(ctx: RequestContext, request: ProduceRequest, append: Append) -> Answer | Awaitable[Answer]:
    """Convert the request's message sets, and ``append`` what they become.

    ``append`` also gets the partitions whose sets aren't appended: their errors, or None for a set without messages.
    """
    jobs = _jobs(ctx, request)
    conversions = ctx.services.conversions
    connection_id = ctx.connection.id
    size = sum(len(job.data.records or b"") for job in jobs)
    if size <= _AT_ONCE_BYTES and not conversions.is_waiting(connection_id):
        settled: Settled = {}
        try:
            converted = [job.convert(_AT_ONCE_LIMIT) for job in jobs]
        except DecompressedTooLargeError:
            pass  # A little that decompresses to a lot: on a thread.
        else:
            for job, each in zip(jobs, converted, strict=True):
                job.settle(each, settled)
            return append(ctx, request, settled)
    everything = [data for topic in request.topic_data for data in topic.partition_data if data.records]
    turn = conversions.reserve(connection_id, sum(len(data.records or b"") for data in everything))
    if turn is None:
        error = KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, "too many records of old formats wait to be converted"
        )
        keys = [(topic.name, data.index) for topic in request.topic_data for data in topic.partition_data]
        return append(ctx, request, dict.fromkeys(keys, error))
    for data in everything:
        # The request's buffer is used again as soon as this returns.
        data.records = memoryview(bytearray(data.records or b""))
    return _convert_and_append(ctx, request, append, jobs, turn)


async def _convert_and_append(
    ctx: RequestContext, request: ProduceRequest, append: Append, jobs: list[_Job], turn: Turn
) -> Answer:
    conversions = ctx.services.conversions
    async with turn:
        settled: Settled = {}
        for job in jobs:
            converted: bytearray | KafkaError | None
            try:
                converted = await conversions.run(job.convert, LARGEST_SET, conversions.pause)
            except DecompressedTooLargeError:
                converted = too_large(job.name, LARGEST_SET)
            job.settle(converted, settled)
        answer = append(ctx, request, settled)
    if isinstance(answer, PendingResponse):
        return await _Awaited(answer).wait()
    return answer


def _jobs(ctx: RequestContext, request: ProduceRequest) -> list[_Job]:
    """The message sets of partitions that this client may write to; the others are refused without a look at them."""
    jobs = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None:
                continue
            if not is_message_set(memoryview(records)):
                # As Kafka does in these versions alone, leave out a part of a batch at the end.
                records = data.records = memoryview(records)[: _whole(records)]
            if is_message_set(memoryview(records)):
                try:
                    partition = ctx.partition(topic.name, data.index)
                    partition.check_leader()
                    log = partition.log
                except KafkaError:
                    continue  # for produce.handle to answer
                jobs.append(_Job(topic.name, data, log.config, log.name))
    return jobs


def _whole(records: Records) -> int:
    """The bytes of the whole batches."""
    position = 0
    while len(records) - position >= LOG_OVERHEAD:
        size = int.from_bytes(records[position + 8 : position + LOG_OVERHEAD], "big", signed=True)
        if size <= 0:
            return len(records)  # for the log to refuse
        if position + LOG_OVERHEAD + size > len(records):
            return position
        position += LOG_OVERHEAD + size
    return position


class _Awaited:
    """Waits for a response that would have gone out on the connection."""

    def __init__(self, pending: PendingResponse) -> None:
        self._pending = pending
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def wait(self) -> Answer:
        """The response. Raises what took its place."""
        self._pending.put(self)
        try:
            answer: Answer = await self._future
            return answer
        finally:
            if self._pending.abandon is not None:
                self._pending.abandon()

    def on_response_ready(self) -> None:
        response: Any = self._pending.parts
        if self._future.done():
            return
        if isinstance(response, BaseException):
            self._future.set_exception(response)
        else:
            self._future.set_result(response)

    def close(self, reason: str | None) -> None:
        raise RuntimeError(f"a response is encoded where it shouldn't be: {reason}")
