"""Admin's calls for offsets in partitions: look them up, and read timestamps and producers."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla_protocol.records.batch import BatchHeader, CorruptRecordError, crc_is_valid, iter_headers
from ottla_protocol.records.record import record_data

from ..deadline import Deadline
from ..errors import ClientError, ConfigurationError, CorruptBatchError
from ..requests.driver import Node, Outcomes, ToLeaders, by_topic, drive, together
from ..requests.fetch import LAST_BY_NAME, FetchPosition, fetch_request
from ..requests.large_batch import LargeBatch
from ..requests.list_offsets import list_offsets
from ..requests.outcomes import error_of, outcome_of
from ..types import ISOLATION_LEVELS, ListedOffset, OffsetSpec, TopicPartition
from .base import AdminBase
from .results import results_or_raise
from .values import ProducerState, TimedOffset

# Fetches in flight per broker. Each returns one batch, of any size.
_FETCHES_AT_ONCE: Final = 8
_BATCH_BYTES: Final = 32 << 20
"""The most decompressed bytes of a batch in which a record is looked up. It keeps others waiting for some 40 ms."""


class OffsetCalls(AdminBase):
    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """The earliest or latest offset, or the first one from a timestamp (milliseconds) on.

        The latest offset is the next one to be written, or with ``read_committed`` the last stable offset. The offset
        is -1 if no record has the timestamp or a later one. Raises UnknownTopicError, BrokerError; PartialError for
        several partitions.
        """
        if isolation_level not in ISOLATION_LEVELS:
            raise ConfigurationError(
                f"isolation_level is one of {', '.join(ISOLATION_LEVELS)}, not {isolation_level!r}"
            )
        for partition, spec in specs.items():
            if spec < OffsetSpec.MAX_TIMESTAMP:
                raise ConfigurationError(f"{partition}: a timestamp is milliseconds from 0 on, not {spec}")

        level = ISOLATION_LEVELS.index(isolation_level)
        outcomes = await list_offsets(self._cluster, specs, level, self._deadline(timeout))
        return results_or_raise("list offsets", outcomes)

    async def timestamps_of(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, TimedOffset | None]:
        """The first record at or after an offset of each partition, with its timestamp; None at the end of the log.

        Reads one batch per partition. Raises BrokerError with OFFSET_OUT_OF_RANGE for an offset outside the log,
        CorruptBatchError, …; PartialError for several partitions.
        """
        outcomes = await self._timestamps(offsets, self._deadline(timeout))
        return results_or_raise("read timestamps", outcomes)

    async def _timestamps(
        self, offsets: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, TimedOffset | ClientError | None]:
        """The outcome for each partition, errors included."""

        async def ask(
            node: Node, partitions: list[TopicPartition], deadline: Deadline
        ) -> Mapping[TopicPartition, TimedOffset | ClientError | None]:
            version = min(LAST_BY_NAME, await self._version(node, ApiKey.FETCH, deadline))
            room = asyncio.Semaphore(_FETCHES_AT_ONCE)

            async def one(partition: TopicPartition) -> TimedOffset | ClientError | None:
                async with room:
                    try:
                        return await self._first_from(node, partition, offsets[partition], deadline, version)
                    except ClientError as error:
                        return error

            found = await together([one(partition) for partition in partitions])
            return dict(zip(partitions, found, strict=True))

        return await drive(offsets, ToLeaders(self._cluster), ask, deadline, self._backoff)

    async def _first_from(
        self, node: Node, partition: TopicPartition, offset: int, deadline: Deadline, version: int
    ) -> TimedOffset | None:
        """Read batch by batch, because compaction may have removed the record or emptied the batch."""
        while True:
            # With a limit of one byte, the broker still sends one whole batch (KIP-74).
            where = {partition: FetchPosition(None, offset, -1, 1)}
            request = fetch_request(where, version=version, max_bytes=1)
            answer = await self._call(node, request, deadline, version)
            if answer.error_code:
                raise error_of(answer.error_code, f"partition {partition}")
            data = answer.responses[0].partitions[0]
            if data.error_code:
                raise error_of(data.error_code, f"partition {partition}")
            behind = offset
            try:
                for position, header in iter_headers(data.records or b""):
                    behind = max(behind, header.last_offset + 1)
                    if header.last_offset < offset or not header.record_count:
                        continue
                    if not crc_is_valid(data.records, position, header):
                        raise CorruptBatchError(
                            f"partition {partition}: the checksum of the batch at offset {header.base_offset} is wrong",
                            partition,
                            header.base_offset,
                            header.last_offset + 1,
                        )
                    found = _first_in(data.records, position, header, offset)
                    if found is not None:
                        return found
            except CorruptRecordError as error:
                raise CorruptBatchError(f"partition {partition}: {error}", partition, offset) from error
            if behind == offset:
                return None
            offset = behind

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The active idempotent and transactional producers of partitions (KIP-664, from Kafka 2.8 on).

        Raises UnknownTopicError, BrokerError; PartialError for several partitions.
        """

        async def ask(
            node: Node, some: list[TopicPartition], deadline: Deadline
        ) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=topic, partition_indexes=[p.partition for p in its])
                    for topic, its in by_topic(some).items()
                ]
            )
            answer = await self._call(node, request, deadline)
            return {
                partition: outcome_of(
                    result.error_code,
                    tuple(map(_producer, result.active_producers)),
                    f"partition {partition}",
                    result.error_message,
                )
                for topic in answer.topics
                for result in topic.partitions
                for partition in [TopicPartition(topic.name, result.partition_index)]
            }

        route = ToLeaders(self._cluster)
        return await self._ask_each("describe producers", list(partitions), route, ask, timeout)


def _first_in(records: bytes, position: int, header: BatchHeader, offset: int) -> TimedOffset | None:
    """The first record of a batch at or after an offset. Raises CorruptRecordError."""
    # A batch of a few kilobytes can have millions of records, or of headers.
    large = LargeBatch(position, header, record_data(records, position, header, _BATCH_BYTES))
    while not large.done:
        columns = large.next(offset)
        index = bisect_left(columns.offsets, offset)
        if index < columns.count:
            return TimedOffset(columns.offsets[index], columns.timestamps[index])
    return None


def _producer(state: Any) -> ProducerState:
    return ProducerState(
        state.producer_id,
        state.producer_epoch,
        None if state.last_sequence < 0 else state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        None if state.current_txn_start_offset < 0 else state.current_txn_start_offset,
    )
