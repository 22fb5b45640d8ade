"""Records of one partition that one ShareFetch has acquired: decoded on demand. Java's ``ShareCompletedFetch``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ..consumer.acquired import Acquired
from ..consumer.buffer import RUN
from ..consumer.positions import PartitionState
from ..consumer.records import Chunk, RecordReader
from ..consumer.rows import Rows
from ..deadline import Deadline
from ..errors import ClientError, CorruptBatchError, DeserializationError
from ..types import TopicPartition
from .acknowledgements import GAP, Acknowledgements, AcknowledgeType

Note = Callable[["Acquisition", int, int, int], None]
"""Decides about offsets that the application doesn't get: the first, the last, the type."""

_NO_END: Final = 1 << 63


class Source(Protocol):
    """The share session that records were acquired in."""

    @property
    def generation(self) -> int:
        """Goes up when the session has ended, and what was acquired in it is void."""

    def acknowledge(self, outgoing: Outgoing) -> None:
        """Send acknowledgements to the session's broker, or complete them with an error."""


class Acquisition:
    """Compared by identity."""

    def __init__(
        self,
        source: Source,
        partition: TopicPartition,
        topic_id: bytes,
        records: memoryview | bytes | None,
        acquired: Acquired,
    ) -> None:
        self.source = source
        self.partition = partition
        self.topic_id = topic_id
        self._generation = source.generation
        self._acquired = acquired
        self._chunk = Chunk(
            PartitionState(partition), memoryview(records or b""), acquired.first, acquired=acquired
        )
        # What is before this offset is decoded, or the client has decided about it.
        self._settled = acquired.first

    @property
    def valid(self) -> bool:
        """Whether the broker still has the records locked for this member, as far as the client knows."""
        return self._generation == self.source.generation

    def take(self, count: int, reader: RecordReader, note: Note) -> Rows | None:
        """The next records, ``count`` at most; None if none are left.

        Raises DeserializationError for a record, about which nothing is decided yet, and CorruptBatchError for a batch
        whose records are rejected. The next call goes on behind them.
        """
        chunk = self._chunk
        if chunk.index >= chunk.rows.count and not self._decode(reader, note):
            return None
        return chunk.take(count)

    def _decode(self, reader: RecordReader, note: Note) -> bool:
        chunk = self._chunk
        try:
            found = reader.read(chunk, RUN)
        except DeserializationError as error:
            self._gaps(note, (), error.offset)
            self._settled = error.offset + 1
            chunk.skip_to(error.offset + 1)
            raise
        except CorruptBatchError as error:
            following = error.next_offset
            self._gaps(note, (), error.offset)
            if following is None or not self._settled <= following <= chunk.end_offset:
                self._give_up(note)
            else:
                # Rejected, as Java does: it would be as corrupt the next time. Nothing is left to reject of a batch
                # that claims a record more than it has.
                if self._settled < following:
                    for first, last in self._acquired.between(self._settled, following):
                        note(self, first, last, AcknowledgeType.REJECT)
                self._settled = following
                chunk.skip_to(following)
            raise
        self._gaps(note, chunk.rows.offsets, chunk.offset)
        if not found:
            self._gaps(note, (), chunk.end_offset)
            self._give_up(note)
        return found

    def _gaps(self, note: Note, offsets: Sequence[int], end: int) -> None:
        """The acquired offsets before ``end`` that have no record: control records, and what compaction has removed."""
        for first, last in self._acquired.without(offsets, self._settled, end):
            note(self, first, last, GAP)
        self._settled = max(self._settled, end)

    def _give_up(self, note: Note) -> None:
        """Release what the response has no bytes of."""
        for first, last in self._acquired.between(self._settled, _NO_END):
            note(self, first, last, AcknowledgeType.RELEASE)
        self._settled = _NO_END
        self._chunk = Chunk(self._chunk.state, memoryview(b""), _NO_END)  # the bytes are no longer needed


class Outgoing:
    """Acknowledgements on their way. ``outcome`` is None, or the error with which they failed."""

    __slots__ = ("acknowledgements", "acquisition", "deadline", "outcome", "runs")

    def __init__(
        self, acquisition: Acquisition, acknowledgements: Acknowledgements, deadline: Deadline
    ) -> None:
        self.acquisition = acquisition
        self.acknowledgements = acknowledgements
        self.runs = acknowledgements.in_runs()
        self.deadline = deadline
        self.outcome: asyncio.Future[ClientError | None] = asyncio.get_running_loop().create_future()

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last offset that they are about."""
        return self.runs[0].first, self.runs[-1].last

    def complete(self, error: ClientError | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(error)
