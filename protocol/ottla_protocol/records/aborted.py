"""Which batches belong to aborted transactions, by the list that a fetch with read_committed answers (KIP-98).

Source: Java's ``CompletedFetch``.
"""

from __future__ import annotations

from collections.abc import Iterable

from .batch import CONTROL, TRANSACTIONAL, BatchHeader
from .control import ABORT, MARKER_BYTES, control_type
from .formats import Octets, decode_any


class AbortedRecords:
    """Follows the batches of one fetch in order, and finds those that a reader of committed records leaves out."""

    __slots__ = ("_coming", "_dropping")

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        """``aborted``: the first offset and the producer id of each aborted transaction."""
        self._coming = sorted(aborted, reverse=True)
        self._dropping: set[int] = set()

    def has(self, data: Octets, position: int, header: BatchHeader) -> bool:
        """Whether the batch at ``position`` belongs to an aborted transaction; its marker ends that.

        Raises CorruptRecordError for a marker that can't be read.
        """
        producer, coming = header.producer_id, self._coming
        if producer < 0:
            return False
        while coming and coming[-1][0] <= header.last_offset:
            self._dropping.add(coming.pop()[1])
        if producer not in self._dropping:
            return False
        if not header.attributes & CONTROL:
            return bool(header.attributes & TRANSACTIONAL)
        marker = decode_any(data, position, header, max_bytes=MARKER_BYTES)
        if marker and control_type(marker[0].key) == ABORT:
            self._dropping.remove(producer)
        return False
