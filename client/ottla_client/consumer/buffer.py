"""Fetched records that are not handed out yet, and how they are handed out.

The application takes records one at a time from a plain list iterator (`Iteration`). ``sync`` updates the positions
from it. ``halt`` ends it, so that the application asks before it takes another record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from operator import length_hint
from typing import TYPE_CHECKING, Any

from ..errors import CorruptBatchError, DeserializationError
from ..meters import Meters
from ..types import ConsumerRecord, TopicPartition
from .positions import PartitionState, Stage
from .records import Chunk, RecordReader
from .rows import Rows, to_records

if TYPE_CHECKING:
    from ..arrow import Part

RUN = 2048
"""About how many records to decode at once: small batches cost more one by one."""
PARTS_BYTES = 64 * 1024 * 1024
"""Decompressed bytes of the batches that are handed out at once; the last one may have more."""
_HEADER_BYTES = 64
"""What a header counts for beside its bytes: it is a tuple of objects, and may have no bytes."""
ENOUGH = 500
"""Records to gather for one iterator, from as many partitions as needed."""


class Buffer:
    """The chunks of all partitions, in the order of their arrival."""

    def __init__(self, reader: RecordReader, room: int, on_room: Callable[[PartitionState], None]) -> None:
        """``on_room`` is called when fewer than ``room`` bytes of a partition are left."""
        self._reader = reader
        self.meters = Meters()
        self._room = room
        self._on_room = on_room
        self._chunks: deque[Chunk] = deque()
        self._iteration: Iteration | None = None
        """The records that the application may be taking one by one."""
        self._unprocessed: set[PartitionState] = set()
        """Partitions with records that were handed out since the application last asked for some."""

    def add(self, chunk: Chunk) -> None:
        """Add a chunk that continues its partition's buffered records."""
        chunk.state.buffered += chunk.size
        self._chunks.append(chunk)

    def drop(self, state: PartitionState) -> None:
        """Drop a partition's buffered records; its position stays after the last record handed out."""
        self.halt(state)
        self._chunks = deque(chunk for chunk in self._chunks if chunk.state is not state)
        state.forget_buffered()

    def remove(self, states: Collection[PartitionState]) -> None:
        """Drop partitions that are no longer assigned."""
        for state in states:
            self.drop(state)
            self._unprocessed.discard(state)

    def skip_to(self, state: PartitionState, offset: int) -> bool:
        """Move the position forward within the buffered records; False if ``offset`` isn't among them."""
        self.halt(state)
        chunks = [chunk for chunk in self._chunks if chunk.state is state]
        if state.stage is not Stage.FETCHING or not chunks or state.position is None:
            return False
        if not state.position <= offset < chunks[-1].end_offset:
            return False
        for chunk in chunks:
            chunk.skip_to(offset)
        state.position = state.processed_offset = offset
        return True

    def iterate(self) -> Iterator[ConsumerRecord[Any, Any]] | None:
        """An iterator over the next records; None if nothing is ready. Raises the errors of ``RecordReader.read``.

        An error behind good records is left for the next call.
        """
        self.sync()
        if self._iteration is not None:
            if self._iteration.usable:
                return self._iteration.iterator
            self.halt()
        chunks: dict[PartitionState, Chunk] = {}
        count = 0
        for chunk in self._usable(None):
            # Decoding a later chunk of the same partition would move the position too early.
            if chunk.state in chunks:
                continue
            try:
                ready = self._decoded(chunk)
            except (CorruptBatchError, DeserializationError) as error:
                if chunks:
                    break
                self._put_off(error)
                raise
            if ready:
                chunks[chunk.state] = chunk
                count += chunk.rows.count - chunk.index
                if count >= ENOUGH:
                    break
        if not chunks:
            return None
        self._iteration = Iteration(tuple(chunks.values()))
        return self._iteration.iterator

    def take(self, count: int, only: Collection[TopicPartition] | None = None) -> list[Rows]:
        """Up to ``count`` records, at least one per item. Raises the errors of ``RecordReader.read``.

        An error behind good records is left for the next call.
        """
        self.halt()
        taken: list[Rows] = []
        for chunk in self._usable(only):
            try:
                while count > 0 and self._decoded(chunk):
                    rows = chunk.take(count)
                    count -= rows.count
                    taken.append(rows)
                    self._moved(chunk)
                    if chunk.exhausted:
                        self._finish(chunk)
                        break
            except (CorruptBatchError, DeserializationError) as error:
                if taken:
                    break
                self._put_off(error)
                raise
            if not count:
                break
        return taken

    @property
    def left_out(self) -> int:
        """Records that ``take_parts`` has passed over because of its ``having``."""
        return self._reader.left_out

    def take_parts(self, count: int, having: bytes | None = None) -> list[Part]:
        """Up to ``count`` records as decoded batches, without batches in which the bytes ``having`` don't occur.

        They end with ``PARTS_BYTES`` of decoded data, or of data that was searched, and then there may be none.

        Raises CorruptBatchError if the first batch is corrupt.
        """
        self.halt()
        parts: list[Part] = []
        size = 0
        for chunk in self._usable(None):
            state = chunk.state
            chunk.rewind()
            while count > 0:
                before, left_out, searched = chunk.at, self._reader.left_out, self._reader.searched
                try:
                    part = self._reader.part(chunk, count, having)
                except CorruptBatchError as error:
                    self._went_on(chunk, before)
                    if parts:
                        return parts
                    self._put_off(error)
                    raise
                self._went_on(chunk, before, handed_out=part is not None)
                count -= self._reader.left_out - left_out
                size += self._reader.searched - searched
                if chunk.epoch is not None:
                    state.epoch = chunk.epoch
                if part is not None:
                    self.meters.add("records-consumed-total", part.records)
                    count -= part.records
                    parts.append(part)
                    size += _size(part)
                done = part is None and chunk.at >= chunk.size
                if done:
                    self._finish(chunk)
                if size >= PARTS_BYTES:
                    return parts
                if done:
                    break
        return parts

    def _usable(self, only: Collection[TopicPartition] | None) -> Iterator[Chunk]:
        for chunk in tuple(self._chunks):
            state = chunk.state
            if chunk.version != state.version:
                self._chunks.remove(chunk)
            elif state.stage is not Stage.FETCHING or state.paused:
                continue
            elif only is None or state.partition in only:
                yield chunk

    def _decoded(self, chunk: Chunk) -> bool:
        """Whether a chunk has rows to hand out; decodes the next run if needed, and drops an empty chunk."""
        if chunk.index < chunk.rows.count:
            return True
        before = chunk.at
        try:
            found = self._reader.read(chunk, RUN)
        except (CorruptBatchError, DeserializationError):
            self._went_on(chunk, before)
            raise
        if found:
            self.meters.add("records-consumed-total", chunk.rows.count)
            self._shrink(chunk, chunk.at - before)
        else:
            self._went_on(chunk, before)
            self._finish(chunk)
        return found

    def _went_on(self, chunk: Chunk, before: int, *, handed_out: bool = False) -> None:
        """A chunk was read from byte ``before``: move the position.

        Control batches and aborted records need no processing: if the application has processed all before them, they
        are processed, too.
        """
        state = chunk.state
        state.unsettled |= handed_out
        if handed_out or state in self._unprocessed:
            self._unprocessed.add(state)
        else:
            state.processed_offset = chunk.offset
        state.position = chunk.offset
        self._shrink(chunk, chunk.at - before)

    def _put_off(self, error: CorruptBatchError | DeserializationError) -> None:
        """A partition has a bad record next: serve other partitions before it is tried again."""
        self._chunks = deque(sorted(self._chunks, key=lambda each: each.state.partition == error.partition))
        if isinstance(error, CorruptBatchError) and self._chunks:
            # It may have been damaged in transit, or be intact on another broker: fetch it again.
            state = self._chunks[-1].state
            self.drop(state)
            self._on_room(state)

    def _shrink(self, chunk: Chunk, size: int) -> None:
        state = chunk.state
        before = state.buffered
        state.buffered = max(0, before - size)
        if before >= self._room > state.buffered:
            self._on_room(state)

    def _finish(self, chunk: Chunk) -> None:
        self._chunks.remove(chunk)
        if not chunk.state.buffered:
            self._on_room(chunk.state)

    def _moved(self, chunk: Chunk) -> None:
        """Rows of a chunk were handed out: move the position."""
        state = chunk.state
        if chunk.version == state.version and chunk.position != state.position:
            state.position = chunk.position
            state.unsettled = True
            self._unprocessed.add(state)
            if chunk.epoch is not None:
                state.epoch = chunk.epoch

    def sync(self) -> None:
        """Update the positions from the records that the application took one by one."""
        if self._iteration is not None:
            taken = self._iteration.taken
            self._follow(self._iteration, taken, ended=taken == self._iteration.count)

    def halt(self, state: PartitionState | None = None) -> None:
        """End the application's iterator, if it has records of this partition, or of any for None."""
        iteration = self._iteration
        if iteration is None or (
            state is not None and all(each.state is not state for each in iteration.chunks)
        ):
            return
        self._follow(iteration, iteration.stop(), ended=True)

    def _follow(self, iteration: Iteration, taken: int, *, ended: bool) -> None:
        iteration.locate(taken)
        for chunk in iteration.chunks:
            self._moved(chunk)
        if not ended:
            return
        for chunk in iteration.chunks:
            processed = iteration.processed_offset(chunk.state, taken)
            if processed is not None:
                chunk.state.processed_offset = processed
        self._iteration = None
        for chunk in iteration.chunks:
            if chunk.exhausted:
                self._finish(chunk)

    def mark_processed(self) -> None:
        """The application asks for records: all that it has count as processed."""
        self.sync()
        for state in self._unprocessed:
            state.processed_offset = state.position
        self._unprocessed.clear()
        if self._iteration is not None:
            self._iteration.processed = self._iteration.taken

    @property
    def unprocessed(self) -> bool:
        """Whether the application may be processing records."""
        self.sync()
        return bool(self._unprocessed)

    def processed_offset(self, state: PartitionState) -> int | None:
        """The offset up to which the application has certainly processed a partition."""
        iteration = self._iteration
        if iteration is not None:
            processed = iteration.processed_offset(state, iteration.taken)
            if processed is not None:
                return processed
        return state.processed_offset

    @property
    def progress(self) -> object:
        """A value that changes whenever the application takes a record from its iterator."""
        iteration = self._iteration
        return None if iteration is None else (id(iteration), iteration.taken)


class Iteration:
    """The decoded rows of chunks from different partitions, as the records of one iterator.

    The application holds a plain list iterator, so that no client code runs between two records. The iterator says how
    many were taken. With ``sync`` the application runs in another thread: counting the rest and taking all of it are
    single calls into C, which the interpreter doesn't interrupt.
    """

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        runs = [chunk.rows.cut(chunk.index, chunk.rows.count) for chunk in chunks]
        starts = accumulate((run.count for run in runs), initial=0)
        self.chunks = chunks
        self._places = [(chunk, chunk.index, start) for chunk, start in zip(chunks, starts, strict=False)]
        """Each chunk, its first row in the iterator, and the number of records before that."""
        records = to_records(runs)
        self.count = len(records)
        self.iterator: Iterator[ConsumerRecord[Any, Any]] = iter(records)
        self.processed = 0
        """The number of records that the application had taken when it last asked for more."""

    @property
    def taken(self) -> int:
        """The number of records that the application has taken."""
        return self.count - length_hint(self.iterator)

    @property
    def usable(self) -> bool:
        """Whether the rest may still be handed out."""
        return all(
            chunk.version == chunk.state.version
            and chunk.state.stage is Stage.FETCHING
            and not chunk.state.paused
            for chunk in self.chunks
        )

    def stop(self) -> int:
        """End the iterator. Returns how many records the application has taken."""
        return self.count - len(list(self.iterator))

    def locate(self, taken: int) -> None:
        """Update the chunks' indexes."""
        for chunk, first, start in self._places:
            chunk.index = self._index(chunk, first, taken - start)

    def processed_offset(self, state: PartitionState, taken: int) -> int | None:
        """The offset up to which the application has processed a partition; None if it has processed no record here.

        Taking a record means that the one before is processed.
        """
        done = max(taken - 1, self.processed)
        for chunk, first, start in self._places:
            if chunk.state is state and chunk.version == state.version and done > start:
                return chunk.offset_at(self._index(chunk, first, done - start))
        return None

    @staticmethod
    def _index(chunk: Chunk, first: int, count: int) -> int:
        return min(first + max(count, 0), chunk.rows.count)


def _size(part: Part) -> int:
    """The decompressed bytes of a part's batches, and what their headers take as objects."""
    columns = part.columns
    spans = columns.spans
    if spans is not None:
        return len(spans.data) + _HEADER_BYTES * sum(map(len, spans.headers.values()))
    fields = sum(len(each) for column in (columns.keys, columns.values) for each in column if each)
    return fields + sum(
        _HEADER_BYTES + len(name) + len(value or b"")
        for headers in columns.headers
        for name, value in headers
    )
