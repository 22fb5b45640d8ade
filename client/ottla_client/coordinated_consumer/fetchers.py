"""Starts and stops the streams' reading as the coordinator says, and knows how far they have come."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack

from ottla_protocol.push import SMALLEST, Ownership, PartitionOffset

from ..types import OffsetSpec, TopicPartition
from ..zookeeper_consumer.stream_engines import StreamEngines


class Fetchers(StreamEngines):
    """Reads what the coordinator says."""

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
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
            first = [engine.state(partition) for partition, offset in its.items() if offset == SMALLEST]
            engine.reset(first, OffsetSpec.EARLIEST)

    async def stop(self) -> tuple[PartitionOffset, ...]:
        """Stop reading when the application has processed its records; returns the offsets then."""
        async with AsyncExitStack() as stack:
            await self._hold(stack, (engine for engine in self._engines if engine.positions.partitions))
            offsets = self.processed()
            self.lose()
        return offsets

    def processed(self) -> tuple[PartitionOffset, ...]:
        """The offsets up to which the application has processed records."""
        return _as_reported(self._processed())

    def committed_by_hand(self) -> tuple[PartitionOffset, ...]:
        """The offsets of a commit by the application."""
        return _as_reported(self.handed_out().items())

    def final(self) -> tuple[PartitionOffset, ...]:
        """The offsets to commit before the consumer closes."""
        if self.all_processed:
            for engine in self._engines:
                engine.buffer.mark_processed()
        return self.processed()


def _as_reported(offsets: Iterable[tuple[TopicPartition, int]]) -> tuple[PartitionOffset, ...]:
    return tuple(PartitionOffset(*partition, offset) for partition, offset in offsets)
