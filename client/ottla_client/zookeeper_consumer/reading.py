"""Starts and stops the streams' reading as partitions come and go, and commits what they have processed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack

from ..consumer.engine import Engine
from ..errors import ClientError
from ..types import TopicPartition
from .offsets import GroupOffsets
from .stream_engines import StreamEngines, StreamOf
from .subscription import ThreadId

_log = logging.getLogger("ottla_client")


class StreamReading(StreamEngines):
    """Reads what rebalances say.

    Java's consumers give up a rebalance after ``rebalance.max.retries`` times ``rebalance.backoff.ms``, so ``patience``
    must be well below that.
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
        super().__init__(engines, stream_of, patience)
        self._offsets = offsets
        self._auto_commit = auto_commit

    def note(self, sizes: Mapping[str, int]) -> None:
        """Partitions that a topic gets later, and topics that come later, are read from their start."""
        for engine in self._engines:
            engine.new_partitions.note(sizes)

    async def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these partitions when the application has processed their records, and commit."""
        async with AsyncExitStack() as stack:
            reading = (e for e in self._engines if not e.positions.partitions.isdisjoint(partitions))
            await self._hold(stack, reading)
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

    async def commit_processed(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Commit what the application has processed, of these partitions or of all; a failure is only logged."""
        try:
            await self._offsets.commit(
                lambda: {
                    p: offset for p, offset in self._processed() if partitions is None or p in partitions
                }
            )
        except ClientError as error:
            _log.warning("the automatic commit of offsets failed: %s", error)
