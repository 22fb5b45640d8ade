"""Reading a log: slices of segment files by offset, and offsets by timestamp (ListOffsets)."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Final, Protocol, TypeAlias, TypeVar

from ottla_broker.log.files import CorruptFileError, FileSlice
from ottla_broker.log.segment import LogSegment
from ottla_broker.log.segment_list import SegmentList
from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.tasks import run_whole
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import MAGIC, MAGIC_AT, NO_TIMESTAMP, BatchHeader, CorruptRecordError
from ottla_protocol.records.find import find_newest, find_since, time_in_batch
from ottla_protocol.records.formats import decode_any

_KNOWN_POSITIONS: Final = 128
_HEADERS_A_STEP: Final = 64
"""Batches that are looked at in a step, each of which may need a read of its own."""
_base_offset = attrgetter("base_offset")


TimestampOffset = tuple[int, int, int]
"""Offset, timestamp and leader epoch of a record, as ListOffsets answers them."""


T = TypeVar("T")
_Batch: TypeAlias = tuple[BatchHeader, bytes]
_Search: TypeAlias = Generator[None, None, TimestampOffset | None]
_Place: TypeAlias = Generator[None, None, tuple[int, int] | None]


class Readable(Protocol):
    """A log as far as its reader needs it."""

    name: str
    failure: str | None
    log_start_offset: int
    log_end_offset: int

    def storage_error(self, what: str, error: OSError) -> KafkaError: ...


class LogReader:
    """Reads an open log. Owned by the loop thread, as the log is."""

    __slots__ = ("_aborting", "_known", "_log", "_newest_since", "_segments")

    def __init__(self, log: Readable, segments: SegmentList) -> None:
        self._log = log
        self._segments = segments
        # Positions of batches by their first offset, for readers that come back where they left off.
        self._known: dict[int, tuple[LogSegment, int]] = {}
        # The segments with markers of aborted transactions; None until they are needed.
        self._aborting: list[LogSegment] | None = None
        # The newest batch that begins late in a segment, whose beginning was deleted: it takes long to find.
        self._newest_since: tuple[tuple[LogSegment, int, int], tuple[int, int]] | None = None

    def forget_positions(self) -> None:
        """Forget where batches and aborted transactions lie: segments are about to change."""
        self._known.clear()
        self._aborting = self._newest_since = None

    def forget_position(self, offset: int) -> None:
        """Forget where the batch that begins at ``offset`` would have been: it goes to another segment."""
        self._known.pop(offset, None)

    def read(self, offset: int, max_bytes: int, *, max_offset: int, min_one: bool) -> FileSlice | None:
        """A slice of batches, the first of which holds ``offset`` (it may begin before it); None for no data.

        At most ``max_bytes``, but with ``min_one`` always the whole first batch, and nothing of a batch that reaches
        ``max_offset``. It ends with a batch where that is cheap to find; otherwise the last batch may be cut short, as
        in Kafka. Raises KafkaError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        log = self._log
        end = log.log_end_offset
        if not log.log_start_offset <= offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{log.name}: offset {offset} is outside of {log.log_start_offset} to {end}",
            )
        if log.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, log.failure)
        if offset >= max_offset or offset == end:
            return None
        known = self._known
        try:
            location = known.get(offset)
            if location is None:
                location = self._locate(offset)
                if location is None:
                    return None
            segment, position = location
            limit = segment.size
            if max_offset >= end:
                next_offset = end if segment is self._segments.active else -1
            else:
                bound = known.get(max_offset)
                if bound is None:
                    bound = self._locate(max_offset)
                next_offset = -1
                if bound is not None and bound[0] is segment:
                    limit = bound[1]
                    next_offset = max_offset
                elif bound is not None and bound[0].base_offset < segment.base_offset:
                    return None
            size = limit - position
            if size > max_bytes:
                size, next_offset = self._limit(segment, position, max_bytes, min_one, limit)
            if size <= 0:
                return None
            if next_offset >= 0 and next_offset not in known:
                if len(known) >= _KNOWN_POSITIONS:
                    del known[next(iter(known))]
                known[next_offset] = (segment, position + size)
            return FileSlice(segment.file, position, size)
        except (CorruptRecordError, CorruptFileError) as error:
            raise self._error(error) from error
        except OSError as error:
            raise log.storage_error("the log could not be read", error) from error

    def _error(self, error: Exception) -> KafkaError:
        damaged = isinstance(error, CorruptRecordError)
        code = ErrorCode.CORRUPT_MESSAGE if damaged else ErrorCode.KAFKA_STORAGE_ERROR
        return KafkaError(code, f"{self._log.name}: {error}")

    def _locate(self, offset: int) -> tuple[LogSegment, int] | None:
        """Segment and position of the first batch that ends at or after ``offset``; None at the end of the log."""
        at = self._segments.index_of(offset)
        segments = self._segments.all
        while at < len(segments):
            found = segments[at].find(offset)
            if found is not None:
                return segments[at], found[0]
            at += 1  # Compaction has emptied the end of that segment.
        return None

    def _limit(
        self, segment: LogSegment, position: int, max_bytes: int, min_one: bool, limit: int
    ) -> tuple[int, int]:
        """Return the number of bytes from ``position`` that fit, and the offset after them, -1 where it isn't known.

        The index knows where some batches begin: the last of those that fits is a clean end.
        """
        end = segment.offset_index.floor_position(position + max_bytes)
        if end <= position:
            size = segment.batch_size(position)
            if size > max_bytes:
                return (size if min_one else 0), -1
            return min(max_bytes, limit - position), -1
        return end - position, int.from_bytes(segment.file.read(end, 8), "big")

    def add_aborted(self, segment: LogSegment, entry: AbortedTransaction) -> None:
        """Add a transaction to the index of its marker's segment. Raises OSError."""
        index = segment.txn_index
        if not index.count:
            self._aborting = None
        index.add(entry)

    def aborted(
        self, offset: int, found: FileSlice, max_offset: int, limit: int = sys.maxsize
    ) -> list[AbortedTransaction]:
        """The aborted transactions in what :meth:`read` has found from ``offset`` to below ``max_offset``.

        There may be some that only later batches belong to. The search ends soon after ``limit`` of them. Raises
        KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._aborting is not None and not self._aborting:
            return []
        with self._reading_aborted():
            at = self._segments.index_of(offset)
            segments = self._segments.all
            while segments[at].file is not found.file:
                at += 1
            segment = segments[at]
            end = segment.offset_index.offset_from(found.position + found.size)
            if end is not None:
                end = min(segment.base_offset + end, max_offset)
            elif at + 1 < len(segments):
                end = min(segments[at + 1].base_offset, max_offset)
            else:
                end = max_offset
            return self._aborted(segment, offset, end, limit)

    def was_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether the producer's records at ``offset`` belong to an aborted transaction.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        with self._reading_aborted():
            segment = self._segments.all[self._segments.index_of(offset)]
            found = self._aborted(segment, offset, offset + 1, sys.maxsize)
        return any(each.producer_id == producer_id and each.first_offset <= offset for each in found)

    @contextmanager
    def _reading_aborted(self) -> Iterator[None]:
        """Raises KafkaError, KAFKA_STORAGE_ERROR, where an index can't be read."""
        try:
            yield
        except CorruptFileError as error:
            raise self._error(error) from error
        except OSError as error:
            raise self._log.storage_error("aborted transactions could not be read", error) from error

    def _aborted(self, segment: LogSegment, offset: int, end: int, limit: int) -> list[AbortedTransaction]:
        """The aborted transactions from ``offset``, which is in ``segment``, to below ``end``. Raises OSError."""
        aborting = self._aborting
        if aborting is None:
            aborting = self._aborting = [each for each in self._segments.all if each.txn_index.count]
        result: list[AbortedTransaction] = []
        first = bisect_left(aborting, segment.base_offset, key=_base_offset)
        for each in aborting[first:]:
            entries, is_complete = each.txn_index.overlapping(offset, end, limit - len(result))
            result += entries
            if is_complete:
                break
        return result

    def bytes_between(self, start: int, end: int) -> int:
        """About how many bytes of batches lie from ``start`` to before ``end``. Raises KafkaError."""
        try:
            first, last = self._locate(start), self._locate(end)
            if first is None:
                return 0
            segments = self._segments.all
            segment, position = (segments[-1], segments[-1].size) if last is None else last
            size = position - first[1]
            if segment is not first[0]:
                low, high = (
                    self._segments.index_of(first[0].base_offset),
                    self._segments.index_of(segment.base_offset),
                )
                size += sum(each.size for each in segments[low:high])
            return size
        except (CorruptRecordError, CorruptFileError, OSError) as error:
            raise self._error(error) from error

    def scan_batches(
        self, start: int, end: int | None = None, chunk_bytes: int = 1 << 20
    ) -> Iterator[memoryview]:
        """All batches in ``[start, end)``, as runs of whole ones of about ``chunk_bytes``. Raises KafkaError."""
        log = self._log
        offset = max(start, log.log_start_offset)
        end = log.log_end_offset if end is None else min(end, log.log_end_offset)
        while offset < end:
            found = self.read(offset, chunk_bytes, max_offset=end, min_one=True)
            if found is None:
                return
            data = memoryview(found.read())
            size, offset = _whole_batches(data, offset)
            if not size:
                return
            yield data[:size]

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record with at least that timestamp; None without one.

        Segments are skipped by their largest timestamp, the time index leads close to the batch, and only that batch is
        searched. Raises KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        return run_whole(self.find_timestamp(timestamp_ms))

    def find_timestamp(self, timestamp_ms: int) -> _Search:
        """:meth:`offset_for_timestamp` in steps, because a batch may have millions of records."""
        start = self._log.log_start_offset
        while True:
            batch = yield from self._steady(partial(self._batch_since, timestamp_ms, start))
            if batch is None:
                return None
            header, data = batch
            try:
                found = yield from _since(header, data, timestamp_ms, start)
            except CorruptRecordError as error:
                raise self._error(error) from error
            if found is not None:
                return *found, header.partition_leader_epoch
            start = header.last_offset + 1

    def _batch_since(self, timestamp_ms: int, start: int) -> Generator[None, None, _Batch | None]:
        """Steps to the first batch from offset ``start`` on with at least that timestamp."""
        for segment in self._segments.all:
            if not segment.size or segment.largest_timestamp() < timestamp_ms:
                continue
            pair = segment.time_index.floor(timestamp_ms)
            offset = segment.base_offset if pair is None else segment.base_offset + pair[1]
            for position, header in _headers(segment, max(offset, start)):
                if position < 0:
                    yield
                elif header.max_timestamp >= timestamp_ms and header.last_offset >= start:
                    return header, _batch_at(segment, position)
        return None

    def _steady(self, search: Callable[[], Generator[None, None, T]]) -> Generator[None, None, T]:
        """A search in steps, again if segments have gone meanwhile. Raises KafkaError."""
        while True:
            segments = self._segments.all
            try:
                return (yield from search())
            except (CorruptRecordError, CorruptFileError, OSError) as error:
                if segments is self._segments.all:
                    raise self._error(error) from error

    def timestamp_at(self, offset: int) -> int | None:
        """About when the first record from ``offset`` on was written, by its timestamp; None at the end of the log.

        Only the header of its batch is read (:func:`.time_in_batch`). Raises KafkaError: CORRUPT_MESSAGE,
        KAFKA_STORAGE_ERROR.
        """
        try:
            location = self._locate(offset)
            if location is None:
                return None
            segment, position = location
            header = next(
                (each for _, each, _ in segment.batches(position, position + 1, headers_only=True)), None
            )
        except (CorruptRecordError, CorruptFileError, OSError) as error:
            raise self._error(error) from error
        return None if header is None else time_in_batch(header, offset)

    def find_max_timestamp(self) -> _Search:
        """The first record with the largest timestamp from the log start on; None without one.

        As in Kafka, that may be -1, of records without a timestamp, but not in message format 0. Runs in steps, because
        a batch may have millions of records. Raises KafkaError.
        """
        start = self._log.log_start_offset
        batch = yield from self._steady(partial(self._newest_batch, start))
        if batch is None:
            return None
        header, data = batch
        if header.magic == 0:
            return None
        try:
            found = yield from _newest(header, data, start)
        except CorruptRecordError as error:
            raise self._error(error) from error
        return None if found is None else (*found, header.partition_leader_epoch)

    def _newest_batch(self, start: int) -> Generator[None, None, _Batch | None]:
        """Steps to the first batch from offset ``start`` on with the largest timestamp."""
        newest, largest, last_offset = None, NO_TIMESTAMP - 1, -1
        for segment in self._segments.all:
            if not segment.size:
                continue
            timestamp, offset = segment.max_timestamp
            if offset < start:
                timestamp, offset = yield from self._max_from(segment, start)
            if timestamp > largest:
                newest, largest, last_offset = segment, timestamp, offset
        if newest is None:
            return None
        for position, header in _headers(newest, last_offset):
            if position < 0:
                yield
            elif header.max_timestamp == largest and header.last_offset >= start:
                return header, _batch_at(newest, position)
        return None

    def _max_from(self, segment: LogSegment, start: int) -> Generator[None, None, tuple[int, int]]:
        """Largest timestamp and its batch's last offset, of the batches that reach ``start``; below -1 without one."""
        key = (segment, segment.size, start)
        if self._newest_since is not None and self._newest_since[0] == key:
            return self._newest_since[1]
        found = (NO_TIMESTAMP - 1, -1)
        for position, header in _headers(segment, start):
            if position < 0:
                yield
            elif header.last_offset >= start and header.max_timestamp > found[0]:
                found = header.max_timestamp, header.last_offset
        self._newest_since = key, found
        return found


def _headers(segment: LogSegment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches from ``offset`` on, or from before it; now and then the position is -1."""
    batches = segment.batches(segment.position_below(offset), headers_only=True)
    for number, (position, header, _) in enumerate(batches, 1):
        yield position, header
        if not number % _HEADERS_A_STEP:
            yield -1, header


def _batch_at(segment: LogSegment, position: int) -> bytes:
    return bytes(next(segment.batches(position, position + 1))[2])


def _whole_batches(data: memoryview, offset: int) -> tuple[int, int]:
    """Return the number of bytes of ``data`` that are whole batches, and the offset after them."""
    end = 0
    while len(data) - end > MAGIC_AT:
        size = int.from_bytes(data[end + 8 : end + 12], "big") + 12
        if end + size > len(data):
            break
        offset = int.from_bytes(data[end : end + 8], "big") + 1
        if data[end + MAGIC_AT] == MAGIC:
            offset += int.from_bytes(data[end + 23 : end + 27], "big")
        end += size
    return end, offset


def _newest(header: BatchHeader, batch: bytes, start: int) -> _Place:
    if header.magic == MAGIC:
        return (yield from find_newest(batch, header, start))
    records = [record for record in decode_any(batch, 0, header) if record.offset >= start]
    if not records:
        return None
    newest = max(records, key=lambda record: record.timestamp)
    return newest.offset, newest.timestamp


def _since(header: BatchHeader, batch: bytes, timestamp_ms: int, start: int) -> _Place:
    if header.magic == MAGIC:
        return (yield from find_since(batch, header, timestamp_ms, start))
    for record in decode_any(batch, 0, header):
        if record.timestamp >= timestamp_ms and record.offset >= start:
            return record.offset, record.timestamp
    return None
