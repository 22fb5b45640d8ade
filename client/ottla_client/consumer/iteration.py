"""Records that the application takes one at a time.

The application holds a plain list iterator, so that no client code runs between two records. The iterator says how many
were taken. With ``sync`` the application runs in another thread: counting the rest and taking all of it are single
calls into C, which the interpreter doesn't interrupt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import length_hint
from typing import Any

from ..types import ConsumerRecord
from .positions import PartitionState, Stage
from .records import Chunk
from .rows import to_records


class Iteration:
    """The decoded rows of chunks from different partitions, as the records of one iterator."""

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
        """How many records the application had taken when it last asked for more."""

    @property
    def taken(self) -> int:
        """How many records the application has taken."""
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
