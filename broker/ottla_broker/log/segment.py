"""One segment of a log: a file of record batches, its indexes, and how an offset is found in it.

The ``.log`` file is record batches, with nothing before, between or after them (a preallocated active segment has
zeros after them, which sealing removes). Where an older Kafka has written, they are messages of the formats 0 and 1,
each of which counts as a batch here: see :mod:`ottla_protocol.records.message_set`.

A segment holds offsets from its base offset up to at most base + 2**31 - 1,
because the indexes store relative offsets as int32. Source: Kafka's LogSegment.

Owned by the log's thread. :meth:`LogSegment.find` and :meth:`LogSegment.batches` may run on another thread for bytes
below a ``size`` that was read before: written bytes never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla_broker.log import names
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Files, LogFile
from ottla_broker.log.index import MAX_RELATIVE, OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, SparseIndex, TimeIndex
from ottla_broker.log.txn_index import TxnIndex
from ottla_protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptRecordError,
    UnsupportedMagicError,
    read_header,
)
from ottla_protocol.records.formats import read_any_header

NO_TIMESTAMP: Final = -1
# Base offset, length, magic and last offset delta: what a hop from batch to batch needs. A message of an old format may
# be shorter, so that a byte of the delta is missing at the end of a file.
_HOP: Final = Struct(">qi4xb6xi")
_HOP_SIZE: Final = _HOP.size
_LEAST_MESSAGE: Final = 26
_SCAN_BYTES: Final = 16 * 1024
_LEGACY_OVERHEAD: Final = 14
_LAST_OLD_MAGIC: Final = 1
CHUNK_BYTES: Final = 1 << 20


class Run(NamedTuple):
    """Whole batches one after the other: bytes, last offset, largest timestamp, and the last offset of its batch."""

    size: int
    last_offset: int
    max_timestamp: int
    max_timestamp_offset: int


class LogSegment:
    """A segment's files and their state; ``size`` is how many bytes hold whole batches."""

    __slots__ = (
        "_first_timestamp",
        "_index_entries_left",
        "_indexed_timestamp",
        "_max_known",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_since_index",
        "_time_index",
        "_txn_index",
        "base_offset",
        "created_ms",
        "directory",
        "file",
        "files",
        "is_new",
        "jitter_ms",
        "size",
        "suffix",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        suffix: str = "",
        new: bool = False,
        now_ms: int = 0,
        jitter_ms: int = 0,
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.created_ms = now_ms
        self.jitter_ms = jitter_ms
        self.is_new = new
        self.file: LogFile = files.file(self.path(names.LOG))
        self.size = 0 if new else self.file.size()
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None
        self._since_index = 0
        self._index_entries_left = -1
        self._max_known = new
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        # Timestamp of the last time index entry, known when the largest one is.
        self._indexed_timestamp = NO_TIMESTAMP
        # Timestamp of the first batch; None until it is needed.
        self._first_timestamp: int | None = None

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        suffix: str = "",
        now_ms: int = 0,
        jitter_ms: int = 0,
    ) -> LogSegment:
        """A new, empty segment with its files on disk; leftovers of the same names are emptied. Raises OSError."""
        segment = cls(
            files, directory, base_offset, suffix=suffix, new=True, now_ms=now_ms, jitter_ms=jitter_ms
        )
        segment.file.create()
        if segment.file.size():
            segment.file.truncate(0)
        if config.preallocate and not suffix:
            segment.file.truncate(config.segment_bytes)
        return segment

    def path(self, kind: str) -> str:
        """Path of one of the segment's files, ``kind`` being ``.log``, ``.index`` and so on."""
        return f"{self.directory}/{names.segment_name(self.base_offset)}{kind}{self.suffix}"

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            index = self._offset_index = OffsetIndex(
                self.files, self.path(names.OFFSET_INDEX), new=self.is_new
            )
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            index = self._time_index = TimeIndex(self.files, self.path(names.TIME_INDEX), new=self.is_new)
        return index

    @property
    def txn_index(self) -> TxnIndex:
        index = self._txn_index
        if index is None:
            index = self._txn_index = TxnIndex(self.files, self.path(names.TXN_INDEX), new=self.is_new)
        return index

    def remove_txn_index(self) -> None:
        """Remove the index of aborted transactions before it is made again. Raises OSError."""
        if self._txn_index is not None:
            self._txn_index.close()
            self._txn_index = None
        self.files.unlink(self.path(names.TXN_INDEX))

    def check_indexes(self) -> None:
        """Compare the indexes, whose files exist, with the segment. Raises CorruptFileError, OSError."""
        self.offset_index.check(self.size)
        self.time_index.check(self.size)

    def write_indexes(self) -> None:
        """Bring the index files up to date, without waiting for the device. Raises OSError."""
        self.offset_index.write()
        self.time_index.write()

    def seal(self) -> None:
        """Finish a segment, which gets no further batches: write its indexes, drop them from memory. Raises OSError."""
        self.index_end()
        self.offset_index.seal()
        self.time_index.seal()
        if self._txn_index is not None:
            self._txn_index.close()
        if self.file.size() > self.size:
            self.file.truncate(self.size)

    def close(self) -> None:
        """Write what is missing in the index files and close them. Raises OSError.

        The segment may be written to again; the next close then adds to the indexes.
        """
        if self._max_known:
            self.index_end()
        for index in (self.offset_index, self.time_index) if self.is_new else self._indexes():
            index.write()
            index.file.close()
        if self._txn_index is not None:
            self._txn_index.close()
        self.is_new = False
        if self.file.size() > self.size:
            self.file.truncate(self.size)

    def _indexes(self) -> list[SparseIndex]:
        """The indexes that have been touched."""
        return [index for index in (self._offset_index, self._time_index) if index is not None]

    def index_end(self) -> None:
        """End the time index with the segment's largest timestamp, as no further batches follow."""
        timestamp, offset = self.max_timestamp
        if timestamp > self._indexed_timestamp:
            self.time_index.add(timestamp, offset - self.base_offset)
            self._indexed_timestamp = timestamp

    def sync_paths(self) -> list[str]:
        """The index files, which must be on the device before the recovery point passes the segment."""
        return [self.path(kind) for kind in names.INDEX_SUFFIXES]

    def rename(self, suffix: str) -> None:
        """Give all files of the segment another suffix (``.deleted``, ``.swap``, none). Raises OSError."""
        old = [(kind, self.path(kind)) for kind in names.SEGMENT_SUFFIXES]
        self.suffix = suffix
        handles = {names.LOG: self.file}
        if self._offset_index is not None:
            handles[names.OFFSET_INDEX] = self._offset_index.file
        if self._time_index is not None:
            handles[names.TIME_INDEX] = self._time_index.file
        if self._txn_index is not None:
            handles[names.TXN_INDEX] = self._txn_index.file
        for kind, path in old:
            new = self.path(kind)
            try:
                self.files.rename(path, new)
            except FileNotFoundError:
                # An empty or old segment may lack an index, but not the log itself.
                if kind == names.LOG:
                    raise
            handle = handles.get(kind)
            if handle is not None:
                handle.path = new

    def folder_renamed(self, directory: str) -> None:
        """The segment's folder has another name: files that are opened again must be found there."""
        self.directory = directory
        self.file.path = self.path(names.LOG)
        if self._offset_index is not None:
            self._offset_index.file.path = self.path(names.OFFSET_INDEX)
        if self._time_index is not None:
            self._time_index.file.path = self.path(names.TIME_INDEX)
        if self._txn_index is not None:
            self._txn_index.file.path = self.path(names.TXN_INDEX)

    def unlink(self) -> None:
        """Remove the segment's files. Raises OSError."""
        for kind in names.SEGMENT_SUFFIXES:
            self.files.unlink(self.path(kind))
        self.file.close()
        for index in self._indexes():
            index.file.close()
        if self._txn_index is not None:
            self._txn_index.close()

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """Largest timestamp and the last offset of its batch; ``(-1, base offset)`` without any."""
        if not self._max_known:
            self._load_max_timestamp()
        return self._max_timestamp, self._max_timestamp_offset

    def _load_max_timestamp(self) -> None:
        last = self.time_index.last()
        if last is not None:
            self._max_timestamp = self._indexed_timestamp = last[0]
            self._max_timestamp_offset = self.base_offset + last[1]
        self._max_known = True

    def set_max_timestamp(self, timestamp: int, offset: int) -> None:
        """Set the largest timestamp, which a scan has found, and its batch's last offset."""
        self._max_timestamp, self._max_timestamp_offset, self._max_known = timestamp, offset, True

    def largest_timestamp(self) -> int:
        """The age for retention by time: the largest timestamp, or without any when the file was last written (ms)."""
        timestamp = self.max_timestamp[0]
        return timestamp if timestamp >= 0 else self.files.modified_ms(self.file.path)

    @property
    def first_timestamp(self) -> int:
        """Largest timestamp of the first batch, from which rolling by time counts; -1 without one."""
        timestamp = self._first_timestamp
        if timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            timestamp = read_any_header(self.file.read(0, HEADER_SIZE)).max_timestamp
            self._first_timestamp = timestamp
        return timestamp

    def waited_ms(self, now_ms: int, timestamp: int) -> int:
        """Return how long the segment has been filling when a batch of ``timestamp`` arrives at ``now_ms``."""
        first = self.first_timestamp
        return timestamp - first if first >= 0 else now_ms - self.created_ms

    def must_roll(self, config: LogConfig, size: int, timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether a batch of ``size`` bytes with these bounds belongs into a new segment."""
        if last_offset - self.base_offset > MAX_RELATIVE:
            return True
        if not self.size:
            return False
        if self.size > config.segment_bytes - size:
            return True
        if self._index_entries_left < 0:
            self._index_entries_left = min(
                config.segment_index_bytes // OFFSET_ENTRY.size - len(self.offset_index),
                config.segment_index_bytes // TIME_ENTRY.size - 1 - len(self.time_index),
            )
        if self._index_entries_left <= 0:
            return True
        return self.waited_ms(now_ms, timestamp) > config.max_segment_ms - self.jitter_ms

    def append(
        self,
        data: bytes | bytearray | memoryview,
        last_offset: int,
        timestamp: int,
        timestamp_offset: int,
        interval: int,
    ) -> None:
        """Write whole batches after the others and index them.

        ``timestamp`` is the largest in them and ``timestamp_offset`` the last offset of its batch; ``interval`` is
        index.interval.bytes. Raises OSError; the segment is then as it was, except for bytes above ``size``.
        """
        if not self._max_known:
            self._load_max_timestamp()
        position = self.size
        self.file.write(data, position)
        # Nothing after the write may fail: the file and this object must agree.
        size = len(data)
        if not position:
            self._first_timestamp = timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
            self._max_timestamp_offset = timestamp_offset
        if self._since_index > interval:
            self.index_batch(last_offset, position)
            self._since_index = 0
        self._since_index += size
        self.size = position + size

    def wrote(self, runs: Iterable[Run], interval: int) -> None:
        """Account for batches that were written to the file after the others, in runs of any size.

        ``interval`` is index.interval.bytes; a run gets one index entry at most.
        """
        for size, last_offset, timestamp, timestamp_offset in runs:
            if timestamp > self._max_timestamp:
                self._max_timestamp = timestamp
                self._max_timestamp_offset = timestamp_offset
            if self._since_index > interval:
                self.index_batch(last_offset, self.size)
                self._since_index = 0
            self._since_index += size
            self.size += size

    def index_batch(self, last_offset: int, position: int) -> None:
        """Index the batch at ``position`` that ends in ``last_offset``, and the largest timestamp so far."""
        base = self.base_offset
        self.offset_index.add(last_offset - base, position)
        if self._max_timestamp > self._indexed_timestamp:
            self.time_index.add(self._max_timestamp, self._max_timestamp_offset - base)
            self._indexed_timestamp = self._max_timestamp
        self._index_entries_left -= 1

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Remove the batch with ``offset`` and all after it; True if any. Raises OSError, CorruptRecordError."""
        found = self.find(offset)
        relative = offset - self.base_offset
        index = self.offset_index
        slot = index.floor_slot(relative)
        index.keep(slot if slot >= 0 and index.entry(slot)[0] == relative else slot + 1)
        times = self.time_index
        count = len(times)
        while count and times.entry(count - 1)[1] >= relative:
            count -= 1
        times.keep(count)
        if found is not None:
            self.cut(found[0])
        if not self.size:
            self.created_ms = now_ms
            self._first_timestamp = None
        self._since_index = 0
        self._index_entries_left = -1
        self._find_max_timestamp()
        return found is not None

    def cut(self, position: int) -> None:
        """Truncate the log file to ``position``. Raises OSError."""
        self.file.truncate(position)
        self.size = position

    def _find_max_timestamp(self) -> None:
        """Find the largest timestamp, from the last time index entry and the batches after it."""
        last = self.time_index.last()
        timestamp, offset = (
            (last[0], self.base_offset + last[1]) if last else (NO_TIMESTAMP, self.base_offset)
        )
        self._indexed_timestamp = timestamp
        for _, header, _ in self.batches(self.position_below(offset)):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self.set_max_timestamp(timestamp, offset)

    def clear_indexes(self) -> None:
        """Empty the indexes before they are rebuilt."""
        self.offset_index.clear()
        self.time_index.clear()
        self._since_index = 0
        self._index_entries_left = -1
        self._indexed_timestamp = NO_TIMESTAMP
        self.set_max_timestamp(NO_TIMESTAMP, self.base_offset)

    def batch_size(self, position: int) -> int:
        """Bytes of the batch that begins at ``position``. Raises OSError."""
        return int.from_bytes(self.file.read(position + LOG_OVERHEAD - 4, 4), "big") + LOG_OVERHEAD

    def position_below(self, offset: int) -> int:
        """A position at or before the batch that holds ``offset``, from the index."""
        pair = self.offset_index.floor(offset - self.base_offset)
        return pair[1] if pair is not None else 0

    def find(self, offset: int, position: int = -1) -> tuple[int, int, int] | None:
        """Position, size and base offset of the first batch that ends at or after ``offset``; None without one.

        The search begins at ``position``, if given: a batch's start. Raises CorruptRecordError, OSError.
        """
        if position < 0:
            position = 0 if offset <= self.base_offset else self.position_below(offset)
        unpack = _HOP.unpack_from
        size = self.size
        start = position
        data = b""
        while position + _LEAST_MESSAGE <= size:
            at = position - start
            if at + _HOP_SIZE > len(data):
                data = self.file.read(position, min(_SCAN_BYTES, size - position))
                start, at = position, 0
                if len(data) < _HOP_SIZE:
                    if len(data) < _LEAST_MESSAGE:
                        break
                    data += bytes(1)
            base, length, magic, delta = unpack(data, at)
            if length < _LEGACY_OVERHEAD:
                raise CorruptRecordError(
                    f"{self.file.path} has no batch at byte {position} (length {length})"
                )
            if (base if magic <= _LAST_OLD_MAGIC else base + delta) >= offset:
                return position, length + LOG_OVERHEAD, base
            position += length + LOG_OVERHEAD
        return None

    def next_offset(self) -> int:
        """The offset after the last batch, or the base offset without any. Raises CorruptRecordError, OSError."""
        index = self.offset_index
        position = index.entry(len(index) - 1)[1] if len(index) else 0
        last = self.base_offset - 1
        for _, header, _ in self.batches(position, headers_only=True):
            last = header.last_offset
        return last + 1

    def batches(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        headers_only: bool = False,
        skip: Callable[[memoryview, int, int], int] | None = None,
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Position, header and bytes of each batch that begins in ``[start, end)`` and is whole below ``size``.

        Messages of old formats are batches here; the header's ``magic`` tells.

        ``start`` is a batch's start. With ``headers_only`` the bytes may be cut short. The CRC isn't checked. ``skip``
        handles whole batches itself: it gets the bytes at hand, where the next batch begins in them and in the file,
        and returns the number of bytes that it has handled; these batches aren't yielded. Raises CorruptRecordError at
        bytes that can't be a batch, OSError.
        """
        limit = self.size
        end = limit if end is None else min(end, limit)
        position = start
        read: Callable[[memoryview, int], BatchHeader] = read_header
        window = memoryview(b"")
        opened = position
        chunk = _SCAN_BYTES if headers_only else CHUNK_BYTES
        while position < end:
            at = position - opened
            if at + HEADER_SIZE > len(window):
                window = memoryview(self.file.read(position, min(chunk, limit - position)))
                opened, at = position, 0
            if skip is not None and (skipped := skip(window, at, position)):
                position += skipped
                continue
            try:
                header = read(window, at)
            except UnsupportedMagicError:
                # Where one message of an old format is, there are more: they don't come here.
                header = read_any_header(window, at)
                read = read_any_header
            size = header.batch_length + LOG_OVERHEAD
            if position + size > limit:
                raise CorruptRecordError(
                    f"{self.file.path} ends in the batch at byte {position} ({limit - position} of {size})"
                )
            if not headers_only and at + size > len(window):
                window = memoryview(self.file.read(position, min(max(chunk, size), limit - position)))
                opened, at = position, 0
            yield position, header, window[at : at + size]
            position += size
