"""The byte work of one cleaning: reading a log's keys into the offset map, and writing cleaned segments.

It runs on a background thread and touches nothing that the event loop changes: a :class:`Source` is a sealed segment's
file, held open even if it is renamed, and the output is a segment that isn't part of the log yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_broker.log import names
from ottla_broker.log.cleaner.filter import BatchFilter, CleaningStats, old_records, record_bytes
from ottla_broker.log.cleaner.offset_map import END, FULL, OTHER, Filtered, KeyMap
from ottla_broker.log.cleaner.output import CleanedOutput
from ottla_broker.log.cleaner.pace import RECORDS_A_TURN, Pace
from ottla_broker.log.cleaner.records import damage, walk
from ottla_broker.log.cleaner.transactions import CleanedTransactions
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Files
from ottla_broker.log.segment import LogSegment
from ottla_protocol.records.batch import LOG_OVERHEAD, MAGIC, BatchHeader, CorruptRecordError
from ottla_protocol.records.formats import read_any_header


class Source(NamedTuple):
    """A sealed segment to read. Made on the loop thread, see :func:`pin`."""

    # A separate segment object, on a handle that stays open while it exists.
    segment: LogSegment
    # Base offset of the next segment.
    end_offset: int
    # When the segment was last written, in ms since the epoch.
    modified_ms: int


def pin(segment: LogSegment, end_offset: int) -> Source:
    """``segment`` for reading on the thread: it stays readable when renamed or deleted. Raises OSError."""
    copy = LogSegment(segment.files, segment.directory, segment.base_offset)
    copy.file = segment.file.pinned()
    copy.size = segment.size
    return Source(copy, end_offset, segment.files.modified_ms(segment.file.path))


def control_key(header: BatchHeader, batch: memoryview) -> bytes | None:
    """The key of a control batch's record; None when compaction emptied it. Raises CorruptRecordError."""
    return next((record.key for record in walk(record_bytes(header, batch), header.record_count)), None)


@dataclass(slots=True, eq=False)
class CleaningWork:
    """One cleaning of one log. Its methods are called one after the other, each on a background thread.

    It reads ``chunk_bytes`` at a time, but larger batches whole.
    """

    files: Files
    directory: str
    config: LogConfig
    offsets: KeyMap
    pace: Pace
    first_dirty: int
    chunk_bytes: int
    # When the last clean segment was written, less delete.retention.ms: for tombstones of old formats.
    old_horizon_ms: int
    stats: CleaningStats = field(default_factory=CleaningStats)

    def _chunk(self, segment: LogSegment, position: int) -> bytes:
        """The bytes from the batch at ``position`` on, at least that batch. Raises CorruptRecordError, OSError."""
        left = segment.size - position
        data = segment.file.read(position, min(self.chunk_bytes, left))
        size = int.from_bytes(data[LOG_OVERHEAD - 4 : LOG_OVERHEAD], "big") + LOG_OVERHEAD
        if len(data) < LOG_OVERHEAD or size > left:
            raise CorruptRecordError(
                f"{segment.file.path} ends in the batch at byte {position} ({left} of {size})"
            )
        return data if size <= len(data) else segment.file.read(position, size)

    def read_keys(self, source: Source, position: int, transactions: CleanedTransactions) -> bool:
        """Put the keys of a dirty segment into the offset map, from the batch at ``position`` on.

        True when the map is full: this cleaning then ends where the map does. Raises CorruptRecordError, OSError,
        CleaningAbortedError.
        """
        offsets, segment = self.offsets, source.segment
        while position < segment.size:
            data = self._chunk(segment, position)
            at, why = offsets.read_keys(data, 0, self.first_dirty)
            while why == OTHER:
                header = read_any_header(data, at)
                self.pace.worked(min(header.record_count, RECORDS_A_TURN))
                if not self._read_batch(header, memoryview(data)[at : at + header.size], transactions):
                    return True
                at, why = offsets.read_keys(data, at + header.size, self.first_dirty)
            if why == FULL:
                return True
            position += at
            self.pace.moved(at)
        offsets.seen_up_to(source.end_offset - 1)
        return False

    def _read_batch(self, header: BatchHeader, batch: memoryview, transactions: CleanedTransactions) -> bool:
        """Put the keys of one batch into the map; False when it is full."""
        if header.magic != MAGIC:
            for record in old_records(header, batch):
                key, offset = record.key, record.offset
                if key is not None and offset >= self.first_dirty and not self.offsets.put(key, offset):
                    return False
        elif header.is_control:
            transactions.on_control(header, control_key(header, batch))
        elif not transactions.on_data(header) and header.last_offset >= self.first_dirty:
            body, count = record_bytes(header, batch), header.record_count
            why = self.offsets.read_body(body, count, header.base_offset, self.first_dirty)
            if why == OTHER:
                raise damage(body, count)
            if why == FULL:
                return False
        if header.last_offset >= self.first_dirty:
            self.offsets.seen_up_to(header.last_offset)
        return True

    def clean(
        self, group: Sequence[Source], rules: BatchFilter, transactions: CleanedTransactions
    ) -> LogSegment | None:
        """Write what stays of ``group`` into one ``.cleaned`` segment, which is on the device when this returns.

        None when the group is one segment that needs no change. Raises CorruptRecordError, OSError,
        CleaningAbortedError; nothing is left on disk then.
        """
        first = group[0].segment
        output = CleanedOutput(
            self.files, self.directory, first.base_offset, self.config, first if len(group) == 1 else None
        )
        markers = len(transactions.retained)
        try:
            for source in group:
                rules.old_tombstones_go = source.modified_ms <= self.old_horizon_ms
                self._filter(source.segment, rules, output)
            if output.segment is not None:
                self._finish(output.segment, transactions, markers, group[-1].modified_ms)
        except BaseException:
            if output.segment is not None:
                output.segment.unlink()
            raise
        return output.segment

    def _filter(self, segment: LogSegment, rules: BatchFilter, output: CleanedOutput) -> None:
        """Append a segment's retained records to the output."""
        stats, last_offsets = self.stats, rules.last_offsets()
        position = 0
        while position < segment.size:
            data = self._chunk(segment, position)
            view = memoryview(data)
            at, why = 0, OTHER
            while True:
                found = Filtered._make(
                    self.offsets.filter(
                        data,
                        at,
                        rules.now_ms,
                        rules.delete_retention_ms,
                        rules.round_end,
                        self.config.index_interval_bytes,
                        last_offsets,
                    )
                )
                stats.records_read += found.records_read
                stats.records_kept += found.records_kept
                stats.keyless += found.keyless
                output.add_runs(view[at : found.position], found.runs, found.output)
                at, why = found.position, found.why
                if why == END:
                    break
                header = read_any_header(data, at)
                self.pace.worked(min(header.record_count, RECORDS_A_TURN))
                batch = view[at : at + header.size]
                output.add_batch(header, rules.filter(header, batch))
                at += header.size
            stats.bytes_read += at
            stats.bytes_written += output.flush()
            position += at
            self.pace.moved(at)

    def _finish(
        self, output: LogSegment, transactions: CleanedTransactions, markers: int, modified_ms: int
    ) -> None:
        """Bring the segment with its indexes to the device, as old as what it replaces."""
        output.txn_index.extend(transactions.retained[markers:])
        output.seal()
        output.file.sync()
        for path in output.sync_paths():
            self.files.sync_path(path)
        self.files.set_modified_ms(output.path(names.LOG), modified_ms)
        self.stats.segments += 1
