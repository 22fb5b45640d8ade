"""Recovery's look at one segment: every batch is checked and indexed, and producers and epochs learn of it.

A batch is fine if it is whole, matches its checksum, and its offsets follow those before. At the first one that isn't,
the scan ends.

Python needs 4 µs for a batch. That is little for batches that a producer has filled, but 20 s for 1 GB of single
records. So the record engine in C handles what nearly all batches are: format 2, no transaction, of the leader epoch
of the batch before. Python handles any other, and all of them where the module is missing.

Runs on the thread that opens the log; the module releases the interpreter's lock.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla_broker.log.index import MAX_RELATIVE
from ottla_broker.log.leader_epoch import LeaderEpochs
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.segment import LogSegment
from ottla_protocol.compiled import load_engine
from ottla_protocol.records.batch import CorruptRecordError, read_header
from ottla_protocol.records.formats import is_intact

_INDEX_ENTRY: Final = Struct("=qqqq")
_POSITION: Final = Struct("=q")
_MOST_OFFSET: Final = 2**63 - 2**31
_NO_EPOCH: Final = -1


class SegmentScan:
    """One scan of a segment, whose indexes it makes again.

    Attributes:
        good: the bytes of fine batches.
        has_gap: whether offsets are missing between two batches.
    """

    def __init__(
        self,
        segment: LogSegment,
        interval: int,
        epochs: LeaderEpochs | None = None,
        producers: ProducerStates | None = None,
    ) -> None:
        """``interval`` is index.interval.bytes. Epochs and producers learn of the batches, if given."""
        self._segment = segment
        self._interval = interval
        self._epochs = epochs
        self._producers = producers
        self._next_offset = segment.base_offset
        self._highest = segment.base_offset + MAX_RELATIVE
        self._indexed = 0
        self._epoch = _NO_EPOCH
        self._compiled = load_engine() if self._highest < _MOST_OFFSET else None
        self.good = 0
        self.has_gap = False

    def run(self) -> str | None:
        """Scan to the segment's end, or to the first damage, and return what is wrong there. Raises OSError."""
        segment, epochs, producers = self._segment, self._epochs, self._producers
        segment.clear_indexes()
        if producers is not None:
            segment.remove_txn_index()
        why: str | None = None
        try:
            for position, header, batch in segment.batches(skip=self._skip if self._compiled else None):
                last = header.last_offset
                if (
                    header.base_offset < self._next_offset
                    or last < header.base_offset
                    or last > self._highest
                ):
                    why = f"offsets {header.base_offset} to {last} where {self._next_offset} is next"
                    break
                if not is_intact(batch, 0, header):
                    why = "the checksum does not match"
                    break
                if header.max_timestamp > segment.max_timestamp[0]:
                    segment.set_max_timestamp(header.max_timestamp, last)
                if position - self._indexed > self._interval:
                    segment.index_batch(last, position)
                    self._indexed = position
                self._epoch = header.partition_leader_epoch
                if epochs is not None:
                    epochs.confirm(self._epoch, header.base_offset, last)
                if producers is not None:
                    ended = producers.replay(header, batch)
                    if ended is not None and ended.aborted:
                        segment.txn_index.add(producers.aborted_entry(ended))
                self.has_gap |= header.base_offset > self._next_offset
                self.good = position + header.size
                self._next_offset = last + 1
        except CorruptRecordError as error:
            why = str(error)
        segment.index_end()
        return why

    def _skip(self, window: memoryview, at: int, position: int) -> int:
        """Handle the batches from ``at`` on that the compiled module can; returns their bytes."""
        epochs, producers, segment = self._epochs, self._producers, self._segment
        if self._compiled is None or not position:
            return 0
        if epochs is not None and self._epoch >= 0 and self._epoch != epochs.latest:
            return 0  # Each batch may change the epochs.
        end, next_offset, indexed, timestamp, timestamp_offset, has_gap, index, sent = (
            self._compiled.scan_segment(
                window,
                at,
                position,
                self._next_offset,
                self._highest,
                self._interval,
                self._indexed,
                *segment.max_timestamp,
                self._epoch,
            )
        )
        if end == at:
            return 0
        for last, indexed_at, largest, largest_offset in _INDEX_ENTRY.iter_unpack(index):
            segment.set_max_timestamp(largest, largest_offset)
            segment.index_batch(last, indexed_at)
        segment.set_max_timestamp(timestamp, timestamp_offset)
        if producers is not None:
            for (batch_at,) in _POSITION.iter_unpack(sent):
                producers.replay(read_header(window, batch_at), window[batch_at:])
            producers.end_offset = next_offset
        self._next_offset, self._indexed = next_offset, indexed
        self.has_gap |= bool(has_gap)
        self.good = position + end - at
        return int(end - at)
