"""Records that the application takes one at a time.

The application holds a plain list iterator, so nothing of the client runs between two records; how far the
application has come is read from the iterator. It may run in another thread (``sync``): counting what is left and
taking all of it are single calls into C, which the interpreter doesn't interrupt.
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
    """The decoded rows of some chunks, of different partitions, made into records for one iterator."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        runs = [chunk.rows.cut(chunk.index, chunk.rows.count) for chunk in chunks]
        starts = accumulate((run.count for run in runs), initial=0)
        self.chunks = chunks
        self._places = [(chunk, chunk.index, start) for chunk, start in zip(chunks, starts, strict=False)]
        """Each chunk, its first row in here, and the number of records before that."""
        records = to_records(runs)
        self.count = len(records)
        self.iterator: Iterator[ConsumerRecord[Any, Any]] = iter(records)
        self.processed = 0
        """How many records the application had when it last asked for more."""

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
        """End the iterator, whoever holds it. Returns how many records the application has taken."""
        return self.count - len(list(self.iterator))

    def locate(self, taken: int) -> None:
        """Bring the chunks' indexes up to date."""
        for chunk, first, start in self._places:
            chunk.index = self._index(chunk, first, taken - start)

    def processed_offset(self, state: PartitionState, taken: int) -> int | None:
        """The offset up to which the application is done with a partition; None where it has only just begun.

        Asking for the next record means being done with the one before.
        """
        done = max(taken - 1, self.processed)
        for chunk, first, start in self._places:
            if chunk.state is state and chunk.version == state.version and done > start:
                return chunk.offset_at(self._index(chunk, first, done - start))
        return None

    @staticmethod
    def _index(chunk: Chunk, first: int, count: int) -> int:
        return min(first + max(count, 0), chunk.rows.count)
