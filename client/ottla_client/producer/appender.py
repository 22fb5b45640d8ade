"""Appends records to batches: finds the topic's queues, the partition, and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING

from ..deadline import Deadline
from ..errors import ClientError, ConfigurationError, UnknownTopicError
from .batch import CLOSED
from .partitioner import deal, partition_for_key

if TYPE_CHECKING:
    from ..cluster import Cluster
    from .accumulator import Accumulator, TopicBuffer
    from .batch import Batch
    from .bulk import Bulk
    from .delivery import BatchDelivery
    from .settings import ProducerSettings

KEYED_AT_ONCE = 65_536
"""Keyed records of a ``send_batch`` are assigned to partitions in steps of this size: all get some early."""


@dataclass(eq=False)
class RecordAppender:
    """Waits for metadata and memory; appends without waiting."""

    cluster: Cluster
    accumulator: Accumulator
    settings: ProducerSettings
    fast_path: bool
    """``Producer.send`` may append plain records to a topic's open batch itself."""
    check_open: Callable[[], None]
    not_sent: Callable[[Exception], None]
    """Called when a delivery reports that records could not be buffered."""

    async def topic(self, name: str, partition: int | None) -> TopicBuffer:
        """The queues of topic ``name``, after checking that it exists and has ``partition``.

        Raises UnknownTopicError, RequestTimeoutError after max_block_ms.
        """
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"the topic is {name!r}; it must be a name")
        deadline = Deadline(self.settings.max_block)
        buffer = self.accumulator.topics.get(name)
        if buffer is None:
            found = await self.cluster.wait_for_topic(
                name, deadline, allow_auto_create=self.settings.allow_auto_create_topics
            )
            self.check_open()
            if name not in self.accumulator.topics:
                self.cluster.interest((name,))
            buffer = self.accumulator.topic(name, found.partitions)
        if partition is not None:
            if partition not in buffer.partitions:
                # The partition may be new.
                now = (await self.cluster.fetch_topics((name,), deadline)).get(name)
                self.check_open()
                if now is not None and now.partitions:
                    buffer = self.accumulator.topic(name, now.partitions)
            if partition not in buffer.partitions:
                raise UnknownTopicError(
                    f"topic {name!r} has no partition {partition!r}; it has 0 to {len(buffer.partitions) - 1}"
                )
            self.accumulator.queue(buffer, partition)
        return buffer

    def partition_of(self, buffer: TopicBuffer, key: bytes | None) -> int | None:
        """The partition for ``key``; None for the current partition of records without a key."""
        partitions = buffer.partitions
        if self.settings.partitioner is None:
            return None if key is None else partitions[partition_for_key(key, len(partitions))]
        partition = self.settings.partitioner(buffer.name, key, tuple(partitions))
        if partition not in partitions:
            raise ConfigurationError(
                f"the partitioner returned {partition!r} for topic {buffer.name!r}, which has the partitions 0 to "
                f"{len(partitions) - 1}"
            )
        return partition

    async def room(self, buffer: TopicBuffer, partition: int | None, size: int, most: int = 0) -> Batch:
        """The open batch of ``partition`` (None: the sticky one) with room for ``size`` bytes, and up to ``most``.

        The caller must append before it awaits anything. Raises BufferFullError after max_block_ms. After an error or
        a cancellation, no memory is allocated.
        """
        accumulator = self.accumulator
        memory = accumulator.memory
        deadline: Deadline | None = None
        held = 0
        try:
            while True:
                if partition is None:
                    queue = accumulator.sticky_queue(buffer, self._has_leader)
                else:
                    queue = accumulator.queue(buffer, partition)
                step = accumulator.step(buffer, queue.tail, size, most)
                if step == CLOSED:
                    accumulator.close(buffer, queue)
                    accumulator.on_ready(queue)
                    # Give the loop a turn once per batch, so that full batches can be sent.
                    await asyncio.sleep(0)
                    self.check_open()
                    continue
                if held < step:
                    if not memory.allocate(step - held):
                        accumulator.hurry()
                        deadline = deadline or Deadline(self.settings.max_block)
                        await memory.wait(step - held, deadline)
                        held = step
                        self.check_open()
                        continue  # the batch may have been sent meanwhile
                    held = step
                batch = accumulator.open_batch(
                    buffer, queue, fast_path=self.fast_path and queue.partition == buffer.sticky.partition
                )
                batch.reserved += step
                batch.left += step
                held -= step
                return batch
        finally:
            if held:
                memory.deallocate(held)

    def _has_leader(self, topic: str, partition: int) -> bool:
        return self.cluster.leader(topic, partition) is not None

    async def add(
        self, buffer: TopicBuffer, bulk: Bulk, partition: int | None, delivery: BatchDelivery
    ) -> None:
        """Append all of ``bulk``, and add the batches to ``delivery``.

        Raises the errors of ``room`` only before the first record is appended; later ``delivery`` gets them.
        """
        if partition is not None or (bulk.keys is None and self.settings.partitioner is None):
            await self._add_to(buffer, bulk, partition, delivery)
            return
        count = len(bulk.values)
        for first in range(0, count, KEYED_AT_ONCE):
            last = min(first + KEYED_AT_ONCE, count)
            for each, places in self._deal(buffer, bulk, first, last).items():
                await self._add_to(buffer, bulk.pick(places), each, delivery)

    def _deal(self, buffer: TopicBuffer, bulk: Bulk, first: int, last: int) -> dict[int, list[int]]:
        """The indexes from ``first`` to before ``last``, by partition."""
        keys = bulk.keys
        partitions = buffer.partitions
        dealt: dict[int, list[int]]
        if keys is not None and self.settings.partitioner is None and None not in keys[first:last]:
            by_number = deal(keys[first:last], len(partitions))  # type: ignore[arg-type]
            dealt = {partitions[each]: places for each, places in by_number.items()}
            if first:
                dealt = {each: [first + at for at in places] for each, places in dealt.items()}
            return dealt
        dealt = {}
        # Records without a key share one partition, in order with the records that belong there.
        sticky = self.accumulator.sticky_queue(buffer, self._has_leader).partition
        for at in range(first, last):
            partition = self.partition_of(buffer, None if keys is None else keys[at])
            if partition is None:
                partition = sticky
            dealt.setdefault(partition, []).append(at)
        return dealt

    async def _add_to(
        self, buffer: TopicBuffer, bulk: Bulk, partition: int | None, delivery: BatchDelivery
    ) -> None:
        count = len(bulk.values)
        sizes = bulk.sizes
        first = 0
        while first < count:
            try:
                batch = await self.room(buffer, partition, sizes.of(first, first + 1), sizes.of(first, count))
            except ClientError as error:
                if not len(delivery):
                    raise
                delivery._refuse(bulk.places[first:], error)
                self.not_sent(error)
                return
            last = max(first + 1, sizes.fitting(first, count, batch.left))
            batch.left -= sizes.of(first, last)
            timestamps = bulk.timestamps
            if timestamps is None:
                timestamps = time_ns() // 1_000_000
            elif not isinstance(timestamps, int):
                timestamps = timestamps[first:last]
            index = batch.extend(
                bulk.values[first:last],
                None if bulk.keys is None else bulk.keys[first:last],
                timestamps,
                None if bulk.headers is None else bulk.headers[first:last],
            )
            delivery._add(batch, index, bulk.places[first:last])
            first = last
