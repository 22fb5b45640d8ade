"""What has been fetched and not handed out yet, and the handing out itself.

The application takes records one at a time straight from a list's iterator, with nothing of this module in
between: how far it has come is read from the iterator when somebody wants to know. So ``sync`` brings a
partition's position up to date, and ``halt`` makes whoever holds the iterator come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import CorruptBatchError, DeserializationError
from ..types import ConsumerRecord, TopicPartition
from .positions import PartitionState, Stage
from .records import Chunk, RecordReader
from .rows import Rows

if TYPE_CHECKING:
    from ..arrow import Part

RUN = 2048
"""Records that are decoded at once, about, if there are as many: small batches cost more by themselves."""


class Buffer:
    """The chunks of all partitions, in the order of their arrival."""

    def __init__(self, reader: RecordReader, room: int, on_room: Callable[[PartitionState], None]) -> None:
        """``on_room`` is called when fewer than ``room`` bytes of a partition are left."""
        self._reader = reader
        self._room = room
        self._on_room = on_room
        self._chunks: deque[Chunk] = deque()
        self._current: Chunk | None = None
        """The chunk whose iterator the application may be holding."""
        self._unsettled: set[PartitionState] = set()
        self._one_by_one = False

    # what comes in

    def add(self, chunk: Chunk) -> None:
        """Take a chunk that continues what is buffered of its partition."""
        chunk.state.buffered += chunk.size
        self._chunks.append(chunk)

    def drop(self, state: PartitionState) -> None:
        """Forget what is buffered of a partition; its position stays behind what was handed out."""
        self.halt(state)
        self._chunks = deque(chunk for chunk in self._chunks if chunk.state is not state)
        state.forget_buffered()

    def remove(self, states: Collection[PartitionState]) -> None:
        """Forget partitions that are no longer assigned."""
        for state in states:
            self.drop(state)
            self._unsettled.discard(state)

    def skip_to(self, state: PartitionState, offset: int) -> bool:
        """Move a partition's position forward inside what is buffered of it; False where it isn't there."""
        self.halt(state)
        chunks = [chunk for chunk in self._chunks if chunk.state is state]
        if state.stage is not Stage.FETCHING or not chunks or state.position is None:
            return False
        if not state.position <= offset < chunks[-1].end_offset:
            return False
        for chunk in chunks:
            chunk.skip_to(offset)
        state.position = state.settled = offset
        return True

    # what goes out

    def next_run(self) -> Iterator[ConsumerRecord[Any, Any]] | None:
        """An iterator over the next records, None where nothing is ready. Raises as ``RecordReader.read``."""
        self._one_by_one = True
        try:
            chunk = self._ready(None)
        except (CorruptBatchError, DeserializationError) as error:
            self._put_off(error)
            raise
        return None if chunk is None else chunk.one_by_one()

    def take(self, count: int, only: Collection[TopicPartition] | None = None) -> list[Rows]:
        """Up to ``count`` records, at least one in each of the items. Raises as ``RecordReader.read``.

        An error behind records that can be handed out is left for the next call.
        """
        self._one_by_one = False
        taken: list[Rows] = []
        while count > 0:
            try:
                chunk = self._ready(only)
            except (CorruptBatchError, DeserializationError) as error:
                if taken:
                    break
                self._put_off(error)
                raise
            if chunk is None:
                break
            rows = chunk.take(count)
            count -= rows.count
            taken.append(rows)
        self.sync()
        return taken

    def take_parts(self, count: int) -> list[Part]:
        """Up to ``count`` records as decoded batches.

        Raises CorruptBatchError as ``RecordReader.batches``, where it is the first.
        """
        self._one_by_one = False
        self.halt()
        parts: list[Part] = []
        for chunk in self._usable(None):
            state = chunk.state
            chunk.rewind()
            while count > 0:
                before = chunk.at
                try:
                    part = self._reader.part(chunk, count)
                except CorruptBatchError as error:
                    self._went_on(chunk, before)
                    if parts:
                        return parts
                    self._put_off(error)
                    raise
                self._went_on(chunk, before)
                if chunk.epoch is not None:
                    state.epoch = chunk.epoch
                if part is None:
                    self._finish(chunk)
                    break
                count -= part.records
                parts.append(part)
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

    def _ready(self, only: Collection[TopicPartition] | None) -> Chunk | None:
        """The first chunk with decoded records, decoded now if need be."""
        self.sync()
        for chunk in self._usable(only):
            if chunk.index == chunk.rows.count:
                before = chunk.at
                try:
                    found = self._reader.read(chunk, RUN)
                except (CorruptBatchError, DeserializationError):
                    self._went_on(chunk, before)
                    raise
                if not found:
                    self._went_on(chunk, before)
                    self._finish(chunk)
                    continue
                self._shrink(chunk, chunk.at - before)
            if chunk is not self._current:
                self.halt()
                self._current = chunk
            return chunk
        return None

    def _went_on(self, chunk: Chunk, before: int) -> None:
        """A chunk was read from the byte ``before``, and the position goes with it."""
        chunk.state.position = chunk.offset
        self._unsettled.add(chunk.state)
        self._shrink(chunk, chunk.at - before)

    def _put_off(self, error: CorruptBatchError | DeserializationError) -> None:
        """A partition has something bad next: others get their turn before it is tried again."""
        self._chunks = deque(sorted(self._chunks, key=lambda each: each.state.partition == error.partition))
        if isinstance(error, CorruptBatchError) and self._chunks:
            # It may have been damaged on its way, or be whole on another broker: fetch it once more.
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
        if self._current is chunk:
            self._current = None
        if not chunk.state.buffered:
            self._on_room(chunk.state)

    # how far it has come

    def sync(self) -> None:
        """Bring the position of the partition that is being handed out up to date."""
        chunk = self._current
        if chunk is None:
            return
        state = chunk.state
        if chunk.version == state.version:
            position = chunk.position
            if position != state.position:
                state.position = position
                self._unsettled.add(state)
            if chunk.epoch is not None:
                state.epoch = chunk.epoch
        if chunk.exhausted:
            self._finish(chunk)

    def settle(self) -> None:
        """The application asks for records: it has done with all that it has been given."""
        self.sync()
        for state in self._unsettled:
            state.settled = state.position
        self._unsettled.clear()
        if self._current is not None:
            self._current.settled = self._current.index

    @property
    def unsettled(self) -> bool:
        """Whether the application may be at work on records."""
        self.sync()
        return bool(self._unsettled)

    def settled(self, state: PartitionState) -> int | None:
        """The offset up to which the application has done with a partition, as far as can be known.

        Where records are taken one by one, asking for the next means having done with the one before.
        """
        chunk = self._current
        if chunk is not None and chunk.state is state and chunk.version == state.version and self._one_by_one:
            index = chunk.index
            if index > chunk.settled + 1:
                return chunk.rows.offsets[index - 1]
        return state.settled

    def halt(self, state: PartitionState | None = None) -> None:
        """Let whoever takes records one by one come back before the next; of one partition, or of any."""
        chunk = self._current
        if chunk is None or (state is not None and chunk.state is not state):
            return
        self.sync()
        if self._current is None:
            return
        chunk.state.settled = self.settled(chunk.state)
        chunk.halt()
        self._current = None

    @property
    def progress(self) -> object:
        """Something that is another when a record has been handed out since."""
        chunk = self._current
        return None if chunk is None else (id(chunk), chunk.run_end, chunk.index)
