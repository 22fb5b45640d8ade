"""The byte work of one cleaning: reading a log's keys into the offset map, and writing cleaned segments.

It runs on a background thread and touches nothing that the event loop changes: a :class:`Source` is a sealed segment's
file, held open even if it is renamed, and the output is a segment that isn't part of the log yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_broker.log import names
from ottla_broker.log.cleaner.filter import BatchFilter, CleaningStats, KeptBatch, record_bytes
from ottla_broker.log.cleaner.offset_map import OffsetMap
from ottla_broker.log.cleaner.pace import RECORDS_A_TURN, Pace
from ottla_broker.log.cleaner.records import walk
from ottla_broker.log.cleaner.transactions import CleanedTransactions
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Files
from ottla_broker.log.segment import LogSegment
from ottla_broker.log.txn_index import encode as encode_txn_index
from ottla_protocol.records.batch import BatchHeader


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
    offsets: OffsetMap
    pace: Pace
    first_dirty: int
    chunk_bytes: int
    stats: CleaningStats = field(default_factory=CleaningStats)

    def read_keys(self, source: Source, position: int, transactions: CleanedTransactions) -> bool:
        """Put the keys of a dirty segment into the offset map, from the batch at ``position`` on.

        True when the map is full: this cleaning then ends where the map does. Raises CorruptRecordError, OSError,
        CleaningAbortedError.
        """
        offsets, pace, first_dirty = self.offsets, self.pace, self.first_dirty
        for _, header, batch in source.segment.batches(position, chunk=self.chunk_bytes):
            pace.moved(header.size)
            pace.worked(min(header.record_count, RECORDS_A_TURN))
            if header.is_control:
                transactions.on_control(header, control_key(header, batch))
            elif not transactions.on_data(header):
                base = header.base_offset
                records = walk(record_bytes(header, batch), header.record_count)
                for number, record in enumerate(records, start=1):
                    if not number % RECORDS_A_TURN:
                        pace.worked(RECORDS_A_TURN)
                    offset = base + record.offset_delta
                    if (
                        record.key is not None
                        and offset >= first_dirty
                        and not offsets.put(record.key, offset)
                    ):
                        return True
            if header.last_offset >= first_dirty:
                offsets.seen_up_to(header.last_offset)
        offsets.seen_up_to(source.end_offset - 1)
        return False

    def clean(
        self, group: Sequence[Source], rules: BatchFilter, transactions: CleanedTransactions
    ) -> LogSegment | None:
        """Write what stays of ``group`` into one ``.cleaned`` segment, which is on the device when this returns.

        None when the group is one segment that needs no change. Raises CorruptRecordError, OSError,
        CleaningAbortedError; nothing is left on disk then.
        """
        base_offset = group[0].segment.base_offset
        output: LogSegment | None = None if len(group) == 1 else self._create(base_offset)
        markers = len(transactions.retained)
        try:
            for source in group:
                for position, header, batch in source.segment.batches(chunk=self.chunk_bytes):
                    self.pace.moved(header.size)
                    self.pace.worked(min(header.record_count, RECORDS_A_TURN))
                    kept = rules.filter(header, batch)
                    if output is None:
                        if kept is not None and not kept.changed:
                            continue
                        output = self._create(base_offset)
                        self._copy(source, position, output)
                    if kept is not None:
                        self._append(output, header, kept)
            if output is not None:
                self._finish(output, transactions, markers, group[-1].modified_ms)
        except BaseException:
            if output is not None:
                output.unlink()
            raise
        return output

    def _create(self, base_offset: int) -> LogSegment:
        """An empty ``.cleaned`` segment, after removing what an earlier attempt left."""
        LogSegment(self.files, self.directory, base_offset, suffix=names.CLEANED).unlink()
        return LogSegment.create(self.files, self.directory, base_offset, self.config, suffix=names.CLEANED)

    def _copy(self, source: Source, end: int, output: LogSegment) -> None:
        """Copy the batches below position ``end``, all of which stay as they are."""
        for _, header, batch in source.segment.batches(0, end, chunk=self.chunk_bytes):
            self.pace.worked()
            self._append(output, header, KeptBatch(batch, header.max_timestamp, changed=False))

    def _append(self, output: LogSegment, header: BatchHeader, kept: KeptBatch) -> None:
        last = header.last_offset
        output.append(kept.data, last, kept.max_timestamp, last, self.config.index_interval_bytes)
        self.pace.moved(len(kept.data))

    def _finish(
        self, output: LogSegment, transactions: CleanedTransactions, markers: int, modified_ms: int
    ) -> None:
        """Bring the segment with its indexes to the device, as old as what it replaces."""
        output.seal()
        retained = transactions.retained[markers:]
        if retained:
            self.files.write_all(output.path(names.TXN_INDEX), encode_txn_index(retained))
        output.file.sync()
        for path in output.sync_paths():
            self.files.sync_path(path)
        self.files.set_modified_ms(output.path(names.LOG), modified_ms)
        self.stats.segments += 1
