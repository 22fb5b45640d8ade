"""One Fetch request: reads its partitions, at once or when they have more data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from ottla_broker.replica.fetch_session import FetchContext, FetchPartition
from ottla_broker.replica.partition import Partition
from ottla_broker.requests.inline import pause
from ottla_broker.requests.turns import OPENED_AT_ONCE, TURN
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)

if TYPE_CHECKING:
    from ottla_broker.log.files import FileSlice
    from ottla_broker.log.reader import LogReader
    from ottla_broker.replica.delayed_fetch import DelayedFetch
    from ottla_broker.requests.context import RequestContext

READ_COMMITTED = 1
_NONE = int(ErrorCode.NONE)
# Shared by all answers that leave them at their defaults, because a fetch may have thousands of partitions.
_NO_DIVERGENCE: Final = EpochEndOffset()
_NO_LEADER: Final = LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = SnapshotId()
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_ANY_REPLICA_SINCE = 11
_MOST_ABORTED = 10_000
"""How many aborted transactions a partition's answer has: each costs time, and records can be fetched later."""
_PORTION = 100
"""Partitions of a fetch of very many that are read at a time."""
_ZSTD_SINCE = 10
"""Consumers with an earlier version can't read zstd (KIP-110)."""
_EPOCHS_SINCE = 12
"""The first version that reports where logs diverge; a session may remember the reader's epoch for an earlier one."""
_REFUSED_UNREAD = (*_UNKNOWN, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors that Kafka finds outside the log: with them, aborted transactions are empty, not null."""


class Fetch:
    """A consumer's fetch; :class:`.follower_fetch.FollowerFetch` is a follower's."""

    __slots__ = (
        "_answers",
        "_any_replica",
        "_context",
        "_ctx",
        "_find",
        "_max_bytes",
        "_rack",
        "_read_committed",
        "_version",
        "immediate",
        "min_bytes",
        "readable",
    )

    # Errors that don't end the wait for data.
    NON_IMMEDIATE_ERRORS: Collection[ErrorCode] = _UNKNOWN

    def __init__(self, ctx: RequestContext, request: FetchRequest, context: FetchContext) -> None:
        services = ctx.services
        self._ctx = ctx
        self._find: Callable[[str, int], Partition] = ctx.partition
        self._version = ctx.version
        self._context = context
        self._max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
        if services.quotas.enabled and not ctx.exempt:
            most = services.quotas.most_bytes(ctx.connection.principal.name, ctx.client_id or "")
            if most is not None:
                self._max_bytes = min(self._max_bytes, most)
        self.min_bytes = min(request.min_bytes, self._max_bytes)
        self._read_committed = request.isolation_level == READ_COMMITTED
        self._any_replica = ctx.version >= _ANY_REPLICA_SINCE
        self._rack = request.rack_id if services.replicas.selector is not None else ""
        self._answers: list[tuple[FetchPartition, PartitionData]] = []
        self.readable: list[Partition] = []
        # Whether not to wait: after an error, with a diverging epoch, or when data continues in the next segment, of
        # which one response has only the first part.
        self.immediate = False

    def read(self) -> int:
        """Read every partition of the request; returns the bytes found."""
        return self._read_some(self._context.partitions.values(), 0)

    async def read_in_portions(self) -> int:
        """The same in portions."""
        specs = list(self._context.partitions.values())
        found = 0
        start = 0
        while start < len(specs):
            portion = specs[start : start + _PORTION]
            work = 3 * _PORTION
            if self._count_closed(portion) > OPENED_AT_ONCE:
                portion, work = portion[:OPENED_AT_ONCE], TURN
            found += self._read_some(portion, found)
            start += len(portion)
            await pause(work)
        return found

    def opens_many(self, request: FetchRequest) -> bool:
        """Whether a request names many partitions whose logs it has to open."""
        if sum(len(topic.partitions) for topic in request.topics) <= OPENED_AT_ONCE:
            return False
        return self._count_closed(self._context.partitions.values()) > OPENED_AT_ONCE

    def _count_closed(self, specs: Iterable[FetchPartition]) -> int:
        """Return the number of the partitions whose log nothing has needed yet."""
        replicas = self._ctx.services.replicas
        return replicas.count_closed(
            (
                spec.name
                or (spec.topic if isinstance(spec.topic, str) else replicas.topic_name(spec.topic) or ""),
                spec.partition,
            )
            for spec in specs
        )

    def _read_some(self, specs: Iterable[FetchPartition], before: int) -> int:
        """Read some partitions; returns the bytes found. ``before``: the bytes that were found in others."""
        left = max(0, self._max_bytes - before)
        found = 0
        for spec in specs:
            if spec.settled is not None and self._has_nothing_new(spec, spec.settled):
                continue
            # Empty, not null, even with an error: librdkafka can't read null.
            answer = PartitionData(
                partition_index=spec.partition,
                high_watermark=-1,
                diverging_epoch=_NO_DIVERGENCE,
                current_leader=_NO_LEADER,
                snapshot_id=_NO_SNAPSHOT,
                records=b"",
            )
            try:
                records = self._read_partition(spec, answer, left, min_one=not (found or before))
            except KafkaError as error:
                answer.error_code = error.code
                answer.aborted_transactions = [] if error.code in _REFUSED_UNREAD else None
                if error.code not in self.NON_IMMEDIATE_ERRORS:
                    self.immediate = True
                self._ctx.services.replicas.counters.fetch_failed(spec.name or "", error.code)
            else:
                if records is not None:
                    answer.records = records
                    size = records.size
                    found += size
                    left = max(0, left - size)
            self._answers.append((spec, answer))
        return found

    def _has_nothing_new(self, spec: FetchPartition, partition: Partition) -> bool:
        """Whether a partition can be skipped because its follower already knows all of it."""
        return False

    def has_grown(self) -> bool:
        """Whether a partition has more to read than when it was read, or has gone."""
        for spec, answer in self._answers:
            if answer.high_watermark < 0:
                continue  # it couldn't be read
            try:
                partition = self._ctx.find_partition(spec.name or "", spec.partition)
                if (
                    partition.high_watermark != answer.high_watermark
                    or partition.last_stable_offset != answer.last_stable_offset
                ):
                    return True
            except KafkaError:
                return True
        return False

    def places(self) -> Iterable[set[DelayedFetch]]:
        """The sets of waiting fetches to join."""
        if self._read_committed:
            return [partition.committed_fetches for partition in self.readable]
        return [partition.fetches for partition in self.readable]

    def _partition(self, spec: FetchPartition) -> Partition:
        """The partition to read. Raises KafkaError if it isn't here, or has another topic id."""
        name = spec.name
        if name is None:
            services = self._ctx.services
            # An id is resolved once, so that a new topic of the same name is noticed.
            topic_id = spec.topic
            if isinstance(topic_id, bytes):
                name = services.replicas.topic_name(topic_id)
                if name is None and (topic := services.metadata.topic_by_id(topic_id)) is not None:
                    name = topic.name
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            spec.name = name
        partition = self._find(name, spec.partition)
        partition.counts.fetch_requests += 1
        if isinstance(spec.topic, bytes) and spec.topic != partition.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def _diverges(self, spec: FetchPartition, answer: PartitionData, partition: Partition) -> bool:
        """Whether the reader's log diverges from this one; the response then says where both may still agree.

        Raises KafkaError: OFFSET_OUT_OF_RANGE.
        """
        log = partition.log
        epoch, end = log.epoch_end_offset(spec.last_fetched_epoch)
        if epoch < 0 or end < 0 or spec.fetch_offset < log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == spec.last_fetched_epoch and end >= spec.fetch_offset:
            return False
        answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
        self.immediate = True
        self._fill(answer, partition)
        return True

    def _read_partition(
        self, spec: FetchPartition, answer: PartitionData, left: int, min_one: bool
    ) -> FileSlice | None:
        partition = self._partition(spec)
        partition.check_readable(spec.current_leader_epoch, self._any_replica)
        self.readable.append(partition)
        log = partition.log
        if self._version < _ZSTD_SINCE and log.config.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if self._rack:
            preferred = self._ctx.services.replicas.preferred_replica(
                partition, self._rack, spec.fetch_offset
            )
            if preferred is not None:
                answer.preferred_read_replica = preferred
                self.immediate = True
                self._fill(answer, partition)
                return None
        high_watermark, stable = partition.high_watermark, partition.last_stable_offset
        limit = stable if self._read_committed else high_watermark
        knows_epoch = spec.last_fetched_epoch >= 0 and self._version >= _EPOCHS_SINCE
        if knows_epoch and self._diverges(spec, answer, partition):
            return None
        records = log.reader.read(
            spec.fetch_offset, min(spec.max_bytes, left), max_offset=limit, min_one=min_one
        )
        self._put_offsets(answer, high_watermark, stable, log.log_start_offset)
        if self._read_committed and records is not None:
            records = self._add_aborted(answer, log.reader, spec.fetch_offset, records, limit)
        if spec.fetch_offset < limit and spec.fetch_offset < log.active.base_offset:
            self.immediate = True
        return records

    def _add_aborted(
        self, answer: PartitionData, reader: LogReader, offset: int, records: FileSlice, limit: int
    ) -> FileSlice:
        """Add the aborted transactions of the records; if they are too many, fewer records are sent."""
        aborted = reader.aborted(offset, records, limit, _MOST_ABORTED)
        if not aborted:
            return records
        while len(aborted) > _MOST_ABORTED:
            less = reader.read(offset, len(records) // 2, max_offset=limit, min_one=True)
            if less is None or len(less) >= len(records):
                aborted = reader.aborted(offset, records, limit)
                break
            records = less
            aborted = reader.aborted(offset, records, limit, _MOST_ABORTED)
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in aborted
        ]
        return records

    def _fill(self, answer: PartitionData, partition: Partition) -> None:
        """Fill in a partition whose log isn't read."""
        start = partition.log.log_start_offset
        self._put_offsets(answer, partition.high_watermark, partition.last_stable_offset, start)
        answer.aborted_transactions = None

    def _put_offsets(self, answer: PartitionData, high_watermark: int, stable: int, start: int) -> None:
        answer.high_watermark = high_watermark
        answer.last_stable_offset = stable
        answer.log_start_offset = start
        answer.aborted_transactions = [] if self._read_committed else None
        answer.records = b""

    def _count_sent(self, spec: FetchPartition, size: int) -> None:
        """Count bytes of records in a response, for metrics."""
        self._ctx.services.replicas.counters.sent(spec.name or "", size)

    def drop(self) -> None:
        """Drop the slices that were read, and the files they hold open, to wait and read again."""
        self._answers = []
        self.readable = []
        self.immediate = False

    def response(self) -> FetchResponse:
        """The response; within a session, without the partitions that have nothing new."""
        context = self._context
        if context.overtaken:
            return FetchResponse(
                error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=context.session_id, responses=[]
            )
        topics: list[FetchableTopicResponse] = []
        last: str | bytes | None = None
        had_data = []
        for spec, answer in self._answers:
            size = 0 if answer.records is None else len(answer.records)
            if size:
                self._count_sent(spec, size)
            if context.session is not None:
                bad = (
                    answer.error_code != _NONE
                    or answer.diverging_epoch.end_offset >= 0
                    or answer.preferred_read_replica >= 0
                )
                # After an error, anything is new.
                new = spec.changed(-1 if bad else answer.high_watermark, answer.log_start_offset)
                if context.incremental:
                    if size:
                        had_data.append((spec.topic, spec.partition))
                    elif not bad and not new:
                        continue
            if answer.error_code == _STORAGE_ERROR and self._version <= 5:
                # Clients of these versions look for the leader again only after this error.
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if spec.topic != last or not topics:
                last = spec.topic
                if isinstance(last, str):
                    topics.append(FetchableTopicResponse(topic=last, partitions=[]))
                else:
                    topics.append(FetchableTopicResponse(topic_id=last, partitions=[]))
            topics[-1].partitions.append(answer)
        # Partitions with data move to the end, so that a busy one doesn't starve the others.
        for key in had_data:
            context.partitions.move_to_end(key)
        return FetchResponse(session_id=context.session_id, responses=topics)
