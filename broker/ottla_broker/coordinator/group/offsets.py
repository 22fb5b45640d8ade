"""The committed offsets of one group, in memory.

Kafka: the offsets in ``GroupMetadata.scala``. There are also two kinds of *pending* offsets: written but not yet
committed by the log, and written by a producer's transaction that has not ended. Clients see neither; a consumer that
asks for stable offsets (KIP-447) gets an error that it retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

NO_EXPIRY = -1
MODERN_COMMIT: Final = 9
"""The first version of OffsetCommit whose clients know groups of the consumer protocol (KIP-848) and their errors."""

TRANSACTION: Final = 1024
"""What a transaction with offsets of a group takes besides them, in bytes."""
_OFFSET: Final = 256
"""What an offset of a transaction takes besides its texts, in bytes."""


@dataclass(slots=True)
class Committed:
    offset: int
    leader_epoch: int
    """Of the last record consumed; -1 if the consumer doesn't state it."""
    metadata: str
    commit_ms: int
    """Wall-clock time of the commit, in ms."""
    expire_ms: int = NO_EXPIRY
    """When it expires, if the consumer asked for a retention time (OffsetCommit 2-4); -1: the broker's applies."""
    position: int = -1
    """The position of its record in the log, which orders two of them; -1 before it is written."""


TopicPartition = tuple[str, int]


class _Staged(dict[TopicPartition, Committed]):
    """The offsets of one open transaction, and the bytes that they take."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = TRANSACTION


def _size(topic: str, committed: Committed) -> int:
    return _OFFSET + len(topic) + len(committed.metadata)


class OffsetTable:
    """Offsets by topic and partition. Owned by its group.

    Attributes:
        staged_bytes: what the offsets of open transactions take, in bytes.
    """

    __slots__ = ("_pending", "_size", "_topics", "_transactions", "staged_bytes")

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, Committed]] = {}
        self._size = 0
        self._pending: dict[TopicPartition, int] = {}
        self._transactions: dict[int, _Staged] = {}
        self.staged_bytes = 0

    # Reading

    def get(self, topic: str, partition: int) -> Committed | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def topics(self) -> Iterator[tuple[str, dict[int, Committed]]]:
        """Every topic with its partitions; don't change the table meanwhile."""
        return iter(self._topics.items())

    def committed_keys(self) -> list[TopicPartition]:
        return [(topic, partition) for topic, partitions in self._topics.items() for partition in partitions]

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether a pending write may soon change this offset."""
        key = (topic, partition)
        return key in self._pending or any(key in staged for staged in self._transactions.values())

    def __len__(self) -> int:
        return self._size

    @property
    def has_pending(self) -> bool:
        return bool(self._pending or self._transactions)

    def pending_keys(self) -> set[TopicPartition]:
        return set(self._pending).union(*self._transactions.values())

    def staged_keys(self) -> dict[TopicPartition, None]:
        """The partitions with offsets of open transactions."""
        return dict.fromkeys(key for staged in self._transactions.values() for key in staged)

    @property
    def is_idle(self) -> bool:
        """Whether there are no offsets, not even pending ones."""
        return not (self._size or self._pending or self._transactions)

    # Plain commits

    def put(self, topic: str, partition: int, committed: Committed) -> None:
        """Add a committed offset, unless a later one is there."""
        partitions = self._topics.get(topic)
        if partitions is None:
            partitions = self._topics[topic] = {}
        current = partitions.get(partition)
        if current is None:
            self._size += 1
        elif current.position > committed.position:
            return
        partitions[partition] = committed

    def begin(self, items: Iterable[tuple[str, int, Committed]]) -> None:
        """Note a write that has been appended and is not committed yet."""
        pending = self._pending
        for topic, partition, _ in items:
            key = (topic, partition)
            pending[key] = pending.get(key, 0) + 1

    def end(self, items: Iterable[tuple[str, int, Committed]]) -> None:
        """Note that the write is committed, or has failed."""
        pending = self._pending
        for topic, partition, _ in items:
            key = (topic, partition)
            left = pending.pop(key) - 1
            if left:
                pending[key] = left

    def remove(self, topic: str, partition: int) -> bool:
        """Remove a committed offset and pending transactional ones; True if there was a committed one."""
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
        """Keep an offset that a transaction wrote until it ends."""
        staged = self._transactions.get(producer_id)
        if staged is None:
            staged = self._transactions[producer_id] = _Staged()
            self.staged_bytes += TRANSACTION
        before = staged.get((topic, partition))
        change = _size(topic, committed) - (0 if before is None else _size(topic, before))
        staged[(topic, partition)] = committed
        staged.bytes += change
        self.staged_bytes += change

    def staging(self, producer_id: int, items: Iterable[tuple[str, int, Committed]]) -> tuple[int, int]:
        """The bytes that the offsets of a transaction take, and those that they would take with ``items``."""
        staged = self._transactions.get(producer_id)
        before = 0 if staged is None else staged.bytes
        after = before or TRANSACTION
        for topic, partition, committed in items:
            known = None if staged is None else staged.get((topic, partition))
            after += _size(topic, committed) - (0 if known is None else _size(topic, known))
        return before, after

    def unstage(self, producer_id: int, topic: str, partition: int) -> None:
        """Remove one offset that a transaction wrote."""
        staged = self._transactions.get(producer_id)
        if staged is not None:
            removed = staged.pop((topic, partition), None)
            if removed is not None:
                size = _size(topic, removed)
                staged.bytes -= size
                self.staged_bytes -= size
            if not staged:
                del self._transactions[producer_id]
                self.staged_bytes -= staged.bytes

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """End a transaction: its offsets are committed or dropped."""
        staged = self._transactions.pop(producer_id, None)
        if staged is None:
            return
        self.staged_bytes -= staged.bytes
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
        """The expired offsets: after their own expiry time, or ``retention_ms`` after ``since_ms``.

        Topics in ``keep`` and partitions with a pending plain write stay.
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
