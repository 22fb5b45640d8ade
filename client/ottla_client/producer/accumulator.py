"""The producer's buffer: a queue of batches for each partition, filled by sends and emptied by the sender.

A batch borrows memory in steps that double up to its full size, so that many partitions with few records each don't use
up the buffer.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from ..meters import Meters
from .batch import CLOSED, Batch
from .buffer_pool import BufferPool
from .partitioner import StickyPartition
from .queue import PartitionQueue, RetryPolicy
from .sequences import ProducerIdHolder, Sequences

if TYPE_CHECKING:
    from random import Random

FIRST_STEP = 4096
"""Bytes that a new batch borrows, unless its first record needs more."""
SMALLEST_LIMIT = 1024
"""The lowest limit for a topic whose brokers refuse larger batches, in bytes."""


class TopicBuffer:
    __slots__ = ("limit", "name", "partitions", "queues", "sticky")

    def __init__(self, name: str, limit: int, random: Random) -> None:
        self.name = name
        self.queues: dict[int, PartitionQueue] = {}
        self.partitions: list[int] = []
        """All known partitions, in order."""
        self.limit = limit
        """Bytes of a full batch; less than batch_size after a broker refused a batch as too large."""
        self.sticky = StickyPartition(limit, random)


@dataclass(eq=False, kw_only=True)
class Accumulator:
    """All records that are sent and not acknowledged. Belongs to one event loop."""

    batch_size: int
    linger: float
    """Seconds."""
    memory: BufferPool
    retries: RetryPolicy
    identities: ProducerIdHolder | None
    """None: batches have no sequence numbers."""
    random: Random
    failed: Callable[[Exception, bool], None] | None = None
    """Called for each batch that fails in a transaction; None for a producer without transactions."""
    topics: dict[str, TopicBuffer] = field(default_factory=dict)
    plain: dict[str, Batch] = field(default_factory=dict)
    """By topic, the open batch for records without a key: the fast path of ``Producer.send``."""
    lingering: deque[Batch] = field(default_factory=deque)
    """Batches that wait for linger to pass, the first due first."""
    on_ready: Callable[[PartitionQueue], None] = lambda _: None
    """Called when a queue may have a batch to send, once there is a sender."""
    on_open: Callable[[PartitionQueue], None] = lambda _: None
    """Called with a queue in which a batch is opened and its time starts."""
    meters: Meters = field(default_factory=Meters)
    by_topic: defaultdict[str, Meters] = field(default_factory=lambda: defaultdict(Meters))

    def topic(self, name: str, partitions: Iterable[int]) -> TopicBuffer:
        """The queues of ``name``, which has these ``partitions`` now."""
        buffer = self.topics.get(name)
        if buffer is None:
            buffer = self.topics[name] = TopicBuffer(name, self.batch_size, self.random)
        known = sorted(partitions)
        if known != buffer.partitions:
            buffer.partitions = known
            if buffer.sticky.partition not in known:
                buffer.sticky.forget()
                self.plain.pop(name, None)
        return buffer

    def queue(self, topic: TopicBuffer, partition: int) -> PartitionQueue:
        """The queue of one partition."""
        queue = topic.queues.get(partition)
        if queue is None:
            sequences = None if self.identities is None else Sequences(self.identities)
            queue = topic.queues[partition] = PartitionQueue(
                topic.name, partition, self.retries, sequences, self.memory.deallocate, self.failed
            )
            queue.count_failed = partial(self._count_failed, topic.name)
        return queue

    def _count_failed(self, topic: str, records: int) -> None:
        self.meters.add("record-error-total", records)
        self.by_topic[topic].add("record-error-total", records)

    def sticky_queue(self, topic: TopicBuffer, has_leader: Callable[[str, int], bool]) -> PartitionQueue:
        """The queue for records without a key."""
        partition = topic.sticky.partition
        if partition is None:
            partitions = topic.partitions
            if len(partitions) > 1:
                partitions = [each for each in partitions if has_leader(topic.name, each)] or partitions
            partition = topic.sticky.draw(
                partitions, [len(self.queue(topic, each).batches) for each in partitions]
            )
        return self.queue(topic, partition)

    def open_batch(self, topic: TopicBuffer, queue: PartitionQueue, *, fast_path: bool) -> Batch:
        """The queue's open batch, or a new one without memory; with ``fast_path`` plain records may go to it."""
        batch = queue.tail
        if batch is None:
            batch = queue.open(monotonic())
            # A batch doesn't linger while sends wait for memory. Without linger the sender takes it in the loop's
            # next turn, with the records added until then.
            lingers = self.linger > 0 and not self.memory.contended
            if lingers:
                self.lingering.append(batch)
            self.on_open(queue)
            if not lingers:
                self._make_ready(batch)
        if fast_path:
            self.plain[topic.name] = batch
        return batch

    def step(self, topic: TopicBuffer, batch: Batch | None, size: int, most: int = 0) -> int:
        """Bytes to allocate so that ``size`` more fit into ``batch`` (None: a new one).

        0 if they fit already, CLOSED if the batch is full. ``most`` asks for more, up to a full batch.
        """
        left = reserved = 0
        if batch is not None:
            left, reserved = batch.left, batch.reserved
        if size <= left:
            return 0
        if reserved - left + size > topic.limit and reserved:
            return CLOSED
        welcome = min(max(reserved, FIRST_STEP, most - left), topic.limit - reserved, self.memory.total)
        return max(size - left, welcome)

    def close(self, topic: TopicBuffer, queue: PartitionQueue) -> None:
        """Close the queue's open batch, if there is one: it is full or about to be sent."""
        batch = queue.close_tail()
        if batch is None:
            return
        if self.plain.get(topic.name) is batch:
            del self.plain[topic.name]
        if topic.sticky.partition == queue.partition:
            topic.sticky.batch_closed(batch.size)

    def lingered(self, now: float) -> float | None:
        """Make batches ready whose linger has passed. Returns when the next is due; None if none waits."""
        lingering = self.lingering
        while lingering:
            batch = lingering[0]
            due = batch.created + self.linger
            if not (batch.ready or batch.done) and due > now:
                return due
            lingering.popleft()
            if not (batch.ready or batch.done):
                self._make_ready(batch)
        return None

    def hurry(self) -> None:
        """Make all batches ready: a caller waits for them, or for their memory."""
        lingering = self.lingering
        while lingering:
            batch = lingering.popleft()
            if not (batch.ready or batch.done):
                self._make_ready(batch)

    def _make_ready(self, batch: Batch) -> None:
        batch.ready = True
        self.on_ready(self.topics[batch.topic].queues[batch.partition])

    def shrink(self, topic: TopicBuffer, size: int) -> None:
        """A broker refused a batch of ``size`` bytes as too large: make smaller batches."""
        topic.limit = max(SMALLEST_LIMIT, min(topic.limit, size // 2))

    def all_queues(self) -> Iterator[PartitionQueue]:
        for topic in self.topics.values():
            yield from topic.queues.values()

    def expire(self, now: float) -> float | None:
        """Fail batches that are out of time. Returns when to check again."""
        found = [at for queue in self.all_queues() if (at := queue.expire(now)) is not None]
        return min(found, default=None)

    def unfinished(self) -> list[Batch]:
        """All batches without an outcome, in no order."""
        return [
            batch
            for queue in self.all_queues()
            for batch in (*queue.batches, *queue.in_flight)
            if not batch.done
        ]
