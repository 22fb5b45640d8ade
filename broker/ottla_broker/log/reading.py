"""Reading a log: slices of segment files by offset, and offsets by time and epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import CorruptRecordError

from .base import LogBase
from .files import FileSlice
from .index import CorruptIndexError
from .producer_state import ProducerEntry
from .segment import LogSegment

_KNOWN_POSITIONS: Final = 128


class LogRead:
    """The answer to a read: ``slice`` of the segment file, or None when nothing is to be had."""

    __slots__ = ("slice",)

    def __init__(self, slice: FileSlice | None) -> None:
        self.slice = slice


_NOTHING: Final = LogRead(None)


class ReadableLog(LogBase):
    """What consumers, followers and coordinators ask a log for."""

    __slots__ = ()

    # --- read ---------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, max_offset: int, min_one: bool) -> LogRead:
        """A slice of batches, the first of which holds ``offset`` (it may begin before it).

        At most ``max_bytes``, but with ``min_one`` always the whole first batch; nothing of a batch that
        reaches ``max_offset``. The end is a batch's end where that is cheap to know; otherwise the last batch
        may be cut short, as Kafka does. Raises KafkaError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE,
        KAFKA_STORAGE_ERROR.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} is outside of {self.log_start_offset} to {end}",
            )
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        if offset >= max_offset or offset == end:
            return _NOTHING
        known = self._known
        try:
            place = known.get(offset)
            if place is None:
                place = self._locate(offset)
                if place is None:
                    return _NOTHING
            segment, position = place
            limit = segment.size
            if max_offset >= end:
                next_offset = end if segment is self.active else -1
            else:
                bound = known.get(max_offset)
                if bound is None:
                    bound = self._locate(max_offset)
                next_offset = -1
                if bound is not None and bound[0] is segment:
                    limit = bound[1]
                    next_offset = max_offset
                elif bound is not None and bound[0].base_offset < segment.base_offset:
                    return _NOTHING
            size = limit - position
            if size > max_bytes:
                size, next_offset = self._cut(segment, position, max_bytes, min_one, limit)
            if size <= 0:
                return _NOTHING
            if next_offset >= 0 and next_offset not in known:
                if len(known) >= _KNOWN_POSITIONS:
                    del known[next(iter(known))]
                known[next_offset] = (segment, position + size)
            return LogRead(FileSlice(segment.file, position, size))
        except CorruptRecordError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: {error}") from error
        except CorruptIndexError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error}") from error
        except OSError as error:
            raise self._storage_error("the log could not be read", error) from error

    def _locate(self, offset: int) -> tuple[LogSegment, int] | None:
        """Segment and position of the first batch that ends at or behind ``offset``;

        None at the end of the log.
        """
        at = max(0, bisect_right(self._bases, offset) - 1)
        segments = self.segments
        while at < len(segments):
            found = segments[at].find(offset)
            if found is not None:
                return segments[at], found[0]
            at += 1  # Compaction has emptied the end of that segment.
        return None

    def _cut(
        self, segment: LogSegment, position: int, max_bytes: int, min_one: bool, limit: int
    ) -> tuple[int, int]:
        """How much of the bytes from ``position`` fits, and the offset that follows if it is known (else -1).

        The index knows some batches' starts: the last of them that fits is a clean end.
        """
        cut = segment.offset_index.floor_position(position + max_bytes)
        if cut <= position:
            size = segment.batch_size(position)
            if size > max_bytes:
                return (size if min_one else 0), -1
            return min(max_bytes, limit - position), -1
        return cut - position, int.from_bytes(segment.file.read(cut, 8), "big")

    def scan_batches(
        self, start: int, end: int | None = None, chunk_bytes: int = 1 << 20
    ) -> Iterator[memoryview]:
        """All batches that hold offsets in ``[start, end)``, as runs of whole batches of about
        ``chunk_bytes``.

        Raises KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        offset = max(start, self.log_start_offset)
        end = self.log_end_offset if end is None else min(end, self.log_end_offset)
        while offset < end:
            found = self.read(offset, chunk_bytes, max_offset=end, min_one=True).slice
            if found is None:
                return
            data = memoryview(found.read())
            used, offset = _whole_batches(data, offset)
            if not used:
                return
            yield data[:used]

    # --- offsets by time and epoch ------------------------------------------------------------------------

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """``(offset, timestamp, leader epoch)`` of the first record at or behind a time;

        None when there is none.
        """
        from .lookup import offset_for_timestamp

        return offset_for_timestamp(self, timestamp_ms)

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """``(offset, timestamp, leader epoch)`` of the record with the largest timestamp;

        None in an empty log.
        """
        from .lookup import max_timestamp_offset

        return max_timestamp_offset(self)

    @property
    def latest_epoch(self) -> int:
        """Epoch of the last leader that wrote; -1 when none did."""
        return self.epochs.latest

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``leader_epoch``, and where it ends; ``(-1, -1)`` when unknown."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def active_producers(self) -> list[ProducerEntry]:
        """What is known of each producer (DescribeProducers)."""
        return list(self.producers.producers.values())


def _whole_batches(data: memoryview, offset: int) -> tuple[int, int]:
    """How many bytes of ``data`` are whole batches, and the offset behind them."""
    used = 0
    while len(data) - used >= 61:
        size = int.from_bytes(data[used + 8 : used + 12], "big") + 12
        if used + size > len(data):
            break
        offset = (
            int.from_bytes(data[used : used + 8], "big")
            + int.from_bytes(data[used + 23 : used + 27], "big")
            + 1
        )
        used += size
    return used, offset
