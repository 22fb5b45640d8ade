"""The committed offsets of one group, in memory.

Kafka: the offsets in ``GroupMetadata.scala``. Beside the committed ones there are two kinds of *pending*
ones: written but not yet committed by the log, and written by a producer's transaction that has not ended.
Neither is given out, and a consumer that asks for stable offsets (KIP-447) is told to ask again where there
is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

NO_EXPIRY = -1


@dataclass(slots=True)
class Committed:
    """One committed offset."""

    offset: int
    leader_epoch: int
    """Of the last record consumed; -1 if the consumer did not say."""
    metadata: str
    commit_ms: int
    """Wall-clock time of the commit, in ms."""
    expire_ms: int = NO_EXPIRY
    """When it expires, where the consumer asked for a retention time (OffsetCommit 2-4); -1 where the
    broker's holds."""
    position: int = -1
    """Where its record is in the log, to tell which of two is the later; -1 before it is written."""


TopicPartition = tuple[str, int]


class OffsetTable:
    """Offsets by topic and partition. Owned by its group."""

    __slots__ = ("_pending", "_size", "_topics", "_transactions")

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, Committed]] = {}
        self._size = 0
        self._pending: Counter[TopicPartition] = Counter()
        self._transactions: dict[int, dict[TopicPartition, Committed]] = {}

    # Reading

    def get(self, topic: str, partition: int) -> Committed | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def topics(self) -> Iterator[tuple[str, dict[int, Committed]]]:
        """Every topic with its partitions; not to be changed meanwhile."""
        return iter(self._topics.items())

    def committed_keys(self) -> list[TopicPartition]:
        """Everything that has a committed offset."""
        return [(topic, partition) for topic, partitions in self._topics.items() for partition in partitions]

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether a pending write may soon change this one."""
        key = (topic, partition)
        return key in self._pending or any(key in staged for staged in self._transactions.values())

    def __len__(self) -> int:
        return self._size

    @property
    def has_pending(self) -> bool:
        """Whether anything has been written that does not count yet."""
        return bool(self._pending or self._transactions)

    def pending_keys(self) -> set[TopicPartition]:
        """What has been written to and does not count yet."""
        return set(self._pending).union(*self._transactions.values())

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing here at all, pending writes included."""
        return not (self._size or self._pending or self._transactions)

    # Plain commits

    def put(self, topic: str, partition: int, committed: Committed) -> None:
        """Take in a committed offset, unless one from later in the log is there."""
        partitions = self._topics.get(topic)
        if partitions is None:
            partitions = self._topics[topic] = {}
        current = partitions.get(partition)
        if current is None:
            self._size += 1
        elif current.position > committed.position:
            return
        partitions[partition] = committed

    def begin(self, topic: str, partition: int) -> None:
        """A write has been appended, and is not committed yet."""
        self._pending[(topic, partition)] += 1

    def end(self, topic: str, partition: int) -> None:
        """That write is committed, or has failed."""
        key = (topic, partition)
        self._pending[key] -= 1
        if self._pending[key] <= 0:
            del self._pending[key]

    def remove(self, topic: str, partition: int) -> bool:
        """Forget a committed offset, and transactional ones not yet committed; True if there was a committed
        one."""
        key = (topic, partition)
        for producer_id in [pid for pid, staged in self._transactions.items() if key in staged]:
            self.unstage(producer_id, topic, partition)
        partitions = self._topics.get(topic)
        if partitions is None or partitions.pop(partition, None) is None:
            return False
        self._size -= 1
        if not partitions:
            del self._topics[topic]
        return True

    # Transactional commits

    def stage(self, producer_id: int, topic: str, partition: int, committed: Committed) -> None:
        """Keep what a transaction wrote until it ends."""
        self._transactions.setdefault(producer_id, {})[(topic, partition)] = committed

    def unstage(self, producer_id: int, topic: str, partition: int) -> None:
        """Forget one offset that a transaction wrote."""
        staged = self._transactions.get(producer_id)
        if staged is not None:
            staged.pop((topic, partition), None)
            if not staged:
                del self._transactions[producer_id]

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A transaction has ended: what it wrote counts now, or never did."""
        staged = self._transactions.pop(producer_id, {})
        if committed:
            for (topic, partition), offset in staged.items():
                self.put(topic, partition, offset)

    # Expiry

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        since_ms: Callable[[Committed], int],
        keep: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """The offsets whose time is over: an explicit expiry has passed, or ``retention_ms`` since
        ``since_ms``.

        Topics in ``keep`` and partitions with a plain write under way stay.
        """
        return [
            (topic, partition)
            for topic, partitions in self._topics.items()
            if topic not in keep
            for partition, committed in partitions.items()
            if (topic, partition) not in self._pending
            and (
                now_ms - since_ms(committed) >= retention_ms
                if committed.expire_ms == NO_EXPIRY
                else now_ms >= committed.expire_ms
            )
        ]
