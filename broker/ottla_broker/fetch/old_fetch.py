"""Fetch, versions 0-3: records in the message formats 0 (versions 0 and 1) and 1, converted from what the log has.

As in Kafka 3.9: control batches and headers are left out, offsets stay. Records compressed with zstd are
UNSUPPORTED_COMPRESSION_TYPE, and a topic with ``message.downconversion.enable=false`` is UNSUPPORTED_VERSION. Versions
0 to 2 read no more than the client's limit.

Threads convert (see :mod:`.conversions`), the first batch of each partition before the answer, the others while it is
being sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla_broker.fetch.converted_records import ConvertedRecords
from ottla_broker.fetch.fetch_request import Fetch
from ottla_broker.log.config import LogConfig
from ottla_broker.log.down_conversion import DownConversion
from ottla_broker.log.files import FileSlice
from ottla_broker.network.service import client_of
from ottla_broker.replica.fetch_session import FetchPartition
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import unless_left
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.down_conversion import UnconvertibleError

_FORMAT_1_SINCE: Final = 2
_MAY_EXCEED_SINCE: Final = 3
"""From this version on the first partition with data returns a whole batch, however large (KIP-74)."""
_KEPT_BYTES: Final = 4 * 1024 * 1024
"""Converted bytes that an answer may keep before it is sent: those of further partitions are made again."""
_OF_ONE_GONE: Final = LogConfig()
"""The settings for records of a partition that has gone since they were found."""


class OldFetch(Fetch):
    """A consumer's fetch whose limits hold for the first partition too, in versions that say so."""

    __slots__ = ()

    def _read_partition(
        self, spec: FetchPartition, answer: PartitionData, left: int, min_one: bool
    ) -> FileSlice | None:
        return super()._read_partition(spec, answer, left, min_one and self._version >= _MAY_EXCEED_SINCE)


@dataclass(slots=True)
class _Job:
    """A partition's records: the part of the answer, and the conversion."""

    answer: PartitionData
    conversion: DownConversion
    size: int = 0
    piece: bytes | None = None
    error: ErrorCode | None = None

    def begin(self, pause: Callable[[], object], kept: int) -> int:
        """Convert the first batch, on a thread, and keep it while it fits; returns the bytes kept in all."""
        try:
            self.size, piece = self.conversion.first(pause)
        except UnconvertibleError:
            self.error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        except CorruptRecordError:
            self.error = ErrorCode.CORRUPT_MESSAGE
        except OSError:
            self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER  # what these versions know a failed disk by
        else:
            if kept and kept + len(piece) > _KEPT_BYTES:
                self.conversion.rewind()
            else:
                self.piece = piece
                kept += len(piece)
        return kept


async def converted(ctx: RequestContext, request: FetchRequest, response: FetchResponse) -> FetchResponse:
    """The response with converted records, unless the client leaves meanwhile."""
    jobs = _jobs(ctx, request, response)
    if not jobs:
        return response
    conversions = ctx.services.conversions

    def begin() -> None:
        kept = 0
        for job in jobs:
            kept = job.begin(conversions.pause, kept)

    client = client_of(ctx.connection)
    await unless_left(conversions.run_for_consumer(client, begin))
    for job in jobs:
        if job.error is not None:
            _refuse(job.answer, job.error)
        elif job.size:
            job.answer.records = ConvertedRecords(conversions, client, job.conversion, job.size, job.piece)
        else:
            job.answer.records = b""
    return response


def _jobs(ctx: RequestContext, request: FetchRequest, response: FetchResponse) -> list[_Job]:
    """The partitions with records. Those that may not be converted get their error."""
    offsets = {
        (topic.topic, partition.partition): partition.fetch_offset
        for topic in request.topics
        for partition in topic.partitions
    }
    magic = 1 if ctx.version >= _FORMAT_1_SINCE else 0
    jobs = []
    for topic in response.responses:
        for answer in topic.partitions:
            partition = ctx.services.replicas.partition(topic.topic, answer.partition_index)
            config = partition.log.config if partition is not None and partition.is_open else _OF_ONE_GONE
            records: object = answer.records
            if request.replica_id < 0 and not config.message_downconversion_enable:
                _refuse(answer, ErrorCode.UNSUPPORTED_VERSION)
            elif isinstance(records, FileSlice):
                offset = offsets[topic.topic, answer.partition_index]
                conversion = DownConversion(records, magic, offset, config.max_repacked_bytes)
                jobs.append(_Job(answer, conversion))
    return jobs


def _refuse(answer: PartitionData, code: ErrorCode) -> None:
    """Answer as Kafka's ``FetchResponse.partitionResponse``."""
    answer.error_code = code
    answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1
    answer.records = b""
