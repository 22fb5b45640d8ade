"""Produce, versions 0-2: message sets of the formats 0 and 1 are stored as batches of format 2, as in Kafka 3.9.

A request with few records is converted at once, a larger one on a thread: see :mod:`.slow_produce`. Clients of these
versions may send batches of format 2 as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla_broker.log.record_validation import Budget, SlowRecordsError, Validated, validate
from ottla_broker.log.up_conversion import LARGEST_SET, is_message_set, to_batch, too_large
from ottla_broker.produce import slow_produce
from ottla_protocol.errors import KafkaError
from ottla_protocol.records.batch import LOG_OVERHEAD
from ottla_protocol.records.compression import DecompressedTooLargeError

if TYPE_CHECKING:
    from ottla_broker.log.log import Log
    from ottla_broker.produce.slow_produce import Job, Pause
    from ottla_broker.requests.context import RequestContext
    from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest

    Records = bytes | bytearray | memoryview

_AT_ONCE_BYTES: Final = 64 * 1024
"""Requests of at most this many bytes of message sets are converted on the event loop, in a few milliseconds."""
_AT_ONCE_LIMIT: Final = 128 * 1024
"""The same for one message set, uncompressed."""


@dataclass(slots=True)
class _Job:
    """A partition's message set, which becomes a batch, or a batch."""

    place: int
    data: PartitionProduceData
    log: Log
    now_ms: int

    def run(self, pause: Pause | None, budget: Budget | None = None) -> Validated | KafkaError | None:
        """See :meth:`.slow_produce.Job.run`."""
        records = memoryview(self.data.records or b"")
        log, config = self.log, self.log.config
        limit = LARGEST_SET
        if budget is not None:
            budget.take(len(records))
            limit = _AT_ONCE_LIMIT
        try:
            if is_message_set(records):
                converted = to_batch(records, config, log.name, limit=limit, pause=pause)
                if converted is None:
                    return None
                records = memoryview(converted)
            return validate(records, config, log.name, self.now_ms, pause=pause)
        except DecompressedTooLargeError:
            if budget is not None:
                # A little that decompresses to a lot.
                raise SlowRecordsError from None
            return too_large(log.name, limit)
        except KafkaError as error:
            # Without its traceback, which would hold the request.
            return error.with_traceback(None)


def budget() -> Budget:
    """How much of a request's message sets is converted on the event loop."""
    return Budget(_AT_ONCE_BYTES)


def conversions(ctx: RequestContext, request: ProduceRequest) -> list[Job]:
    """What has to be converted, or checked, of a request."""
    now_ms = ctx.services.clock.now_ms()
    jobs: list[Job] = []
    for place, data, log in slow_produce.writable(ctx, request):
        if data.records is None:
            continue
        if not is_message_set(memoryview(data.records)):
            # As Kafka does in these versions alone, leave out a part of a batch at the end.
            data.records = memoryview(data.records)[: _whole(data.records)]
        jobs.append(_Job(place, data, log, now_ms))
    return jobs


def _whole(records: Records) -> int:
    position = 0
    while len(records) - position >= LOG_OVERHEAD:
        size = int.from_bytes(records[position + 8 : position + LOG_OVERHEAD], "big", signed=True)
        if size <= 0:
            return len(records)  # for the log to refuse
        if position + LOG_OVERHEAD + size > len(records):
            return position
        position += LOG_OVERHEAD + size
    return position
