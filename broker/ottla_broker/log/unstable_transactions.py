"""The transactions of a log that consumers of committed records may not read yet.

A transaction is unstable while it is open, and after that until its marker is below the high watermark: a leader that
has not replicated a marker may lose it. The first offset of all unstable transactions bounds the last stable offset
(Kafka's ``ProducerStateManager.firstUnstableOffset``).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

NONE_UNSTABLE: Final = 2**63 - 1

MAX_ENDED: Final = 10_000
"""How many ended transactions are remembered. A coordinator ends a producer's next one only after the last marker is
replicated, so more come only from a recovery, and the oldest of those were decided long ago."""


class UnstableTransactions:
    """Owned by the log's thread. Every operation takes constant time, amortised.

    Attributes:
        first_offset: the smallest first offset of an unstable transaction; NONE_UNSTABLE without one.
    """

    __slots__ = ("_ended", "_open", "first_offset")

    def __init__(self) -> None:
        self.first_offset = NONE_UNSTABLE
        # Producer ids by the transactions' first offsets. Batches come in the order of offsets, so this is sorted.
        self._open: OrderedDict[int, int] = OrderedDict()
        # First offsets and markers of transactions that have ended above the high watermark. Both ascend: one that
        # begins later and ends earlier than another bounds nothing that the other doesn't.
        self._ended: deque[tuple[int, int]] = deque()

    @property
    def first_open(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open), None)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """A producer's transaction begins, above all others."""
        self._open[first_offset] = producer_id
        if first_offset < self.first_offset:
            self.first_offset = first_offset

    def end(self, first_offset: int, marker_offset: int) -> None:
        """The transaction that began at ``first_offset`` has a marker, which is not known to be replicated."""
        self._open.pop(first_offset, None)
        ended = self._ended
        while ended and ended[-1][0] > first_offset:
            ended.pop()
        ended.append((first_offset, marker_offset))
        if len(ended) > MAX_ENDED:
            ended.popleft()
            self._find_first()

    def replicated_to(self, high_watermark: int) -> None:
        """The high watermark has moved: transactions whose markers are below it are stable."""
        ended = self._ended
        if not ended or ended[0][1] >= high_watermark:
            return
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        self._find_first()

    def restore(self, open_transactions: list[tuple[int, int]]) -> None:
        """Forget everything, and take these first offsets and producer ids as the open transactions."""
        self._ended.clear()
        self._open = OrderedDict(sorted(open_transactions))
        self._find_first()

    def _find_first(self) -> None:
        first = next(iter(self._open), NONE_UNSTABLE)
        if self._ended:
            first = min(first, self._ended[0][0])
        self.first_offset = first
