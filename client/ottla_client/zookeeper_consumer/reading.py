"""Starts and stops the streams' reading as partitions come and go, and commits what they have processed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TypeAlias

from ..consumer.engine import Engine
from ..errors import ClientError
from ..types import TopicPartition
from .offsets import GroupOffsets
from .subscription import ThreadId

_log = logging.getLogger("ottla_client")

StreamOf: TypeAlias = Callable[[str, int], int]
"""From a topic and the number of one of its streams to the index of the engine that reads it."""


class StreamReading:
    """The engines of all streams. Belongs to the event loop's thread.

    ``patience``: how many seconds a rebalance waits for the application to process the records it has. Java's consumers
    give up a rebalance after ``rebalance.max.retries`` times ``rebalance.backoff.ms``, so it must be well below that.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        stream_of: StreamOf,
        offsets: GroupOffsets,
        patience: float,
        *,
        auto_commit: bool,
    ) -> None:
        self._engines = engines
        self._stream_of = stream_of
        self._offsets = offsets
        self._patience = patience
        self._auto_commit = auto_commit
        self.all_processed = False
        """Whether records that were handed out count as processed, because the application closes the consumer."""

    async def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these partitions when the application has processed their records, and commit."""
        async with AsyncExitStack() as stack:
            for engine in self._engines:
                if engine.positions.partitions.isdisjoint(partitions):
                    continue
                if not await stack.enter_async_context(engine.gate.held(self._patience)):
                    _log.warning(
                        "the application has not processed its records within %g s; others may get them again",
                        self._patience,
                    )
                if self.all_processed:
                    engine.buffer.mark_processed()
            if self._auto_commit:
                await self.commit_processed(partitions)
            for engine in self._engines:
                engine.assign(engine.positions.partitions.difference(partitions))

    async def start(self, assigned: Mapping[TopicPartition, ThreadId]) -> None:
        """Read these partitions from their committed offsets, or from where auto_offset_reset says."""
        offsets = await self._offsets.fetch(tuple(assigned))
        for index, engine in enumerate(self._engines):
            its = [
                partition
                for partition, thread in assigned.items()
                if self._stream_of(partition.topic, thread.stream) == index
            ]
            if its:
                at = {partition: offsets[partition] for partition in its if partition in offsets}
                engine.assign(engine.positions.partitions.union(its), at)

    def lose(self) -> None:
        for engine in self._engines:
            engine.assign(())

    def report(self, error: ClientError) -> None:
        for engine in self._engines:
            engine.report(error)

    async def commit_processed(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Commit what the application has processed, of these partitions or of all; a failure is only logged."""
        try:
            await self._offsets.commit(lambda: dict(self._processed(partitions)))
        except ClientError as error:
            _log.warning("the automatic commit of offsets failed: %s", error)

    def _processed(
        self, partitions: Collection[TopicPartition] | None
    ) -> Iterator[tuple[TopicPartition, int]]:
        for engine in self._engines:
            engine.buffer.sync()
            for state in engine.positions:
                offset = engine.buffer.processed_offset(state)
                if offset is not None and (partitions is None or state.partition in partitions):
                    yield state.partition, offset

    def handed_out(self) -> dict[TopicPartition, int]:
        """The positions of all streams."""
        found = {}
        for engine in self._engines:
            engine.buffer.sync()
            found.update(
                {state.partition: state.position for state in engine.positions if state.position is not None}
            )
        return found
