"""Produce requests whose records may take long to check: compressed or many, or in formats of old producers.

All records of such a request are checked before any is appended. Where that takes some milliseconds at most, it is done
at once. Otherwise it is done on a thread. Meanwhile nothing is read from the request's connection, so that requests
keep their order, and a client can't send more than the broker can check.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from ottla_broker.fetch.conversions import ConversionsStopped
from ottla_broker.log.record_validation import Budget, SlowRecordsError, Validated, validate
from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.network.service import client_of
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import CODEC_MASK, FLAGS_AT, MAGIC, MAGIC_AT, BatchHeader
from ottla_protocol.records.compression import ZSTD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ottla_broker.log.log import Log
    from ottla_broker.requests.context import RequestContext
    from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest

FORMAT_2_SINCE: Final = 3
"""The first version whose records are batches of format 2, and only those."""

CheckedRecords: TypeAlias = "Mapping[int, BatchHeader | KafkaError | None]"
"""The result of the check, by a partition's place in the request: the header of its batch, the error, or None for
nothing to append."""
Pause: TypeAlias = "Callable[[], object]"


class Job(Protocol):
    """A partition's records, which are checked or converted before they are appended.

    Attributes:
        place: the partition's place in the request.
    """

    place: int
    data: PartitionProduceData

    def run(self, pause: Pause | None, budget: Budget | None = None) -> Validated | KafkaError | None:
        """The records to append, the error, or None for nothing to append. May run on any thread.

        Raises SlowRecordsError: they exceed the ``budget``.
        """
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


def budget() -> Budget:
    """How much of a request's batches is checked on the event loop."""
    return Budget()


def checks(ctx: RequestContext, request: ProduceRequest) -> list[Job]:
    """What has to be checked of a request."""
    now_ms = ctx.services.clock.now_ms()
    return [
        _Check(place, data, log, ctx.version, now_ms)
        for place, data, log in writable(ctx, request)
        if data.records
    ]


def at_once(jobs: Sequence[Job], budget: Budget) -> CheckedRecords | None:
    """Do the jobs; None if they exceed the budget."""
    try:
        results = [job.run(None, budget) for job in jobs]
    except SlowRecordsError:
        return None
    return _noted(jobs, results)


async def on_a_thread(ctx: RequestContext, jobs: Sequence[Job]) -> CheckedRecords:
    """Do the jobs on a thread, in turns with other clients'. Raises CloseConnection when the broker stops."""
    try:
        conversions, client = ctx.services.conversions, client_of(ctx.connection)
        results = [await conversions.run(client, job.run, conversions.pause) for job in jobs]
    except ConversionsStopped:
        raise CloseConnection("the broker stops") from None
    return _noted(jobs, results)


def _noted(jobs: Sequence[Job], results: Sequence[Validated | KafkaError | None]) -> CheckedRecords:
    """Put the batches that are to be appended into the request."""
    checked: dict[int, BatchHeader | KafkaError | None] = {}
    for job, result in zip(jobs, results, strict=True):
        if isinstance(result, Validated):
            job.data.records, checked[job.place] = result
        else:
            checked[job.place] = result
    return checked


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
