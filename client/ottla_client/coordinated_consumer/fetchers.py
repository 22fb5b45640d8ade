"""Starts and stops the streams' reading as the coordinator says, and knows how far they have come."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack

from ottla_protocol.push import Ownership, PartitionOffset

from ..consumer.engine import Engine
from ..errors import ClientError
from ..types import TopicPartition
from ..zookeeper_consumer.reading import StreamOf

_log = logging.getLogger("ottla_client")


class Fetchers:
    """The engines of all streams. Belongs to the event loop's thread.

    ``patience``: how many seconds a stop waits for the application to process the records it has.
    """

    def __init__(self, engines: Sequence[Engine], stream_of: StreamOf, patience: float) -> None:
        self._engines = engines
        self._stream_of = stream_of
        self._patience = patience
        self.all_processed = False
        """Whether records that were handed out count as processed, because the application closes the consumer."""

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What is read now."""
        return frozenset().union(*(engine.positions.partitions for engine in self._engines))

    def start(self, ownership: Iterable[Ownership]) -> None:
        """Read exactly these partitions, from their offsets, or from where auto_offset_reset says."""
        wanted: list[dict[TopicPartition, int]] = [{} for _ in self._engines]
        for thread_id, partitions in ownership:
            index = int(thread_id.rpartition("-")[2])
            for topic, number, offset in partitions:
                wanted[self._stream_of(topic, index)][TopicPartition(topic, number)] = offset
        for engine, its in zip(self._engines, wanted, strict=True):
            engine.assign(its, {partition: offset for partition, offset in its.items() if offset >= 0})

    async def stop(self) -> tuple[PartitionOffset, ...]:
        """Stop reading when the application has processed its records; returns the offsets then."""
        async with AsyncExitStack() as stack:
            for engine in self._engines:
                if not engine.positions.partitions:
                    continue
                if not await stack.enter_async_context(engine.gate.held(self._patience)):
                    _log.warning(
                        "the application has not processed its records within %g s; others may get them again",
                        self._patience,
                    )
                if self.all_processed:
                    engine.buffer.mark_processed()
            offsets = self.processed()
            self.lose()
        return offsets

    def lose(self) -> None:
        """Stop reading at once."""
        for engine in self._engines:
            engine.assign(())

    def report(self, error: ClientError) -> None:
        for engine in self._engines:
            engine.report(error)

    def processed(self) -> tuple[PartitionOffset, ...]:
        """The offsets up to which the application has processed records."""
        found = []
        for engine in self._engines:
            engine.buffer.sync()
            for state in engine.positions:
                offset = engine.buffer.processed_offset(state)
                if offset is not None:
                    found.append(PartitionOffset(*state.partition, offset))
        return tuple(found)

    def final(self) -> tuple[PartitionOffset, ...]:
        """The offsets to commit before the consumer closes."""
        if self.all_processed:
            for engine in self._engines:
                engine.buffer.mark_processed()
        return self.processed()

    def handed_out(self) -> tuple[PartitionOffset, ...]:
        """The positions of all streams."""
        found = []
        for engine in self._engines:
            engine.buffer.sync()
            found += [
                PartitionOffset(*state.partition, state.position)
                for state in engine.positions
                if state.position is not None
            ]
        return tuple(found)
