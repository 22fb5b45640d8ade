"""Produce requests whose records may take long to check: compressed or many, or in formats of old producers.

All records of such a request are checked before any is appended. Where that takes some milliseconds at most, it is done
at once. Otherwise the request is copied and checked on a thread. Meanwhile nothing is read from its connection, so that
requests keep their order, and a client can't send more than the broker can check.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ottla_broker.log.record_validation import Budget, SlowRecordsError, Validated, validate
from ottla_broker.network.pending_response import PendingResponse
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import CODEC_MASK, FLAGS_AT, MAGIC, MAGIC_AT
from ottla_protocol.records.compression import ZSTD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from ottla_broker.handlers.context import RequestContext
    from ottla_broker.log.log import Log
    from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse

FORMAT_2_SINCE: Final = 3
"""The first version whose records are batches of format 2, and only those."""

CheckedRecords: TypeAlias = "Mapping[int, Validated | KafkaError | None]"
"""The result of the check, by a partition's place in the request: the validated records, the error, or None for nothing
to append."""
Answer: TypeAlias = "ProduceResponse | PendingResponse | None"
Append: TypeAlias = "Callable[[RequestContext, ProduceRequest, CheckedRecords], Answer]"
Pause: TypeAlias = "Callable[[], object]"


class Job(Protocol):
    """A partition's records, which are checked or converted before they are appended.

    Attributes:
        place: the partition's place in the request.
    """

    place: int
    data: PartitionProduceData

    def run(self, pause: Pause) -> Validated | KafkaError | None:
        """The records to append, the error, or None for nothing to append. May run on any thread."""
        ...


@dataclass(slots=True)
class _Check:
    """A partition's batch, and the settings of its log."""

    place: int
    data: PartitionProduceData
    log: Log
    version: int
    now_ms: int

    def run(self, pause: Pause | None, budget: Budget | None = None) -> Validated | KafkaError | None:
        records = memoryview(self.data.records or b"")
        log = self.log
        try:
            check_codec(self.version, records)
            return validate(records, log.config, log.name, self.now_ms, budget=budget, pause=pause)
        except KafkaError as error:
            # Without its traceback, which would hold the request.
            return error.with_traceback(None)


def handle(ctx: RequestContext, request: ProduceRequest, append: Append) -> Answer | Awaitable[Answer]:
    """Check the request's batches, and ``append`` them."""
    now_ms = ctx.services.clock.now_ms()
    jobs = [
        _Check(place, data, log, ctx.version, now_ms)
        for place, data, log in writable(ctx, request)
        if data.records
    ]
    checked: dict[int, Validated | KafkaError | None] = {}
    budget = Budget()
    try:
        for job in jobs:
            note_result(job, job.run(None, budget), checked)
    except SlowRecordsError:
        return run(ctx, request, jobs, append)
    return append(ctx, request, checked)


def writable(ctx: RequestContext, request: ProduceRequest) -> Iterator[tuple[int, PartitionProduceData, Log]]:
    """The partitions that this client may write to and this broker leads; the others are refused unchecked."""
    place = -1
    for topic in request.topic_data:
        for data in topic.partition_data:
            place += 1
            try:
                partition = ctx.partition(topic.name, data.index)
                partition.check_leader()
                log = partition.log
            except KafkaError:
                continue  # for produce.handle to answer
            yield place, data, log


def check_codec(version: int, records: memoryview) -> None:
    """Raises KafkaError: UNSUPPORTED_COMPRESSION_TYPE for zstd before version 7."""
    if (
        FORMAT_2_SINCE <= version < 7
        and len(records) > FLAGS_AT
        and records[FLAGS_AT] & CODEC_MASK == ZSTD
        and records[MAGIC_AT] == MAGIC
    ):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version 7, this is {version}"
        )


def note_result(
    job: Job | _Check,
    result: Validated | KafkaError | None,
    checked: dict[int, Validated | KafkaError | None],
) -> None:
    checked[job.place] = result
    if isinstance(result, Validated):
        job.data.records = result.batch


def run(
    ctx: RequestContext, request: ProduceRequest, jobs: Sequence[Job], append: Append
) -> Awaitable[Answer]:
    """Do the jobs on a thread, and ``append``; until then nothing is read from the connection."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records:
                # The request's buffer is used again as soon as this returns.
                data.records = memoryview(bytearray(data.records))
    ctx.connection.begin_long()
    return _run(ctx, request, jobs, append)


async def _run(ctx: RequestContext, request: ProduceRequest, jobs: Sequence[Job], append: Append) -> Answer:
    conversions = ctx.services.conversions
    checked: dict[int, Validated | KafkaError | None] = {}
    try:
        for job in jobs:
            note_result(job, await conversions.run(job.run, conversions.pause), checked)
        answer = append(ctx, request, checked)
    finally:
        ctx.connection.end_long()
    if isinstance(answer, PendingResponse):
        return await Awaited(answer).wait()
    return answer


class Awaited:
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
