"""How many records a reader has left: the one definition that broker, client and pipeline share.

In each partition that is what lies between the place where reading goes on and the end of the log, never less than
nothing. Reading goes on at the committed offset or, if records before it are gone, at the log's start. An offset beyond
the end isn't lag, and takes nothing off the lag of another partition: see :func:`beyond_end`.

Offsets aren't records: markers of transactions, aborted records and gaps left by compaction have offsets, and no one
reads them. A :class:`Look` counts what is there for as far as it has read the log; behind that, offsets count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .records.aborted import AbortedRecords
from .records.batch import CONTROL, MAGIC, BatchHeader
from .records.find import count_from, time_in_batch
from .records.formats import Octets, iter_headers

LOOK_BYTES: Final = 64 << 10
"""A look reads about this many bytes of a log in which all offsets are records."""
MOST_LOOK_BYTES: Final = 1 << 20
"""The same of a log with markers, aborted records or gaps."""
_MOST_STEPS: Final = 16
"""Steps through a batch's records: about a MiB of them."""


def unread(offset: int, start: int, end: int, done: int = 0) -> int:
    """The offsets that are left from ``offset`` to ``end`` of a log that begins at ``start``.

    ``done``: how many records behind the offset are done with, in a share group. Those that were removed since count as
    the first of them.
    """
    removed = max(0, start - offset)
    return max(0, end - offset - removed - max(0, done - removed))


def beyond_end(offset: int, end: int) -> int:
    """How far an offset lies beyond the end: the topic was made again, or has lost records. 0 if it doesn't."""
    return max(0, offset - end)


def records_from(header: BatchHeader, offset: int) -> int:
    """How many records of a batch are at ``offset`` or behind it; at most, if compaction has removed some."""
    if header.magic != MAGIC:
        # A compressed message doesn't say how many are in it; its offset is that of the last one.
        left = header.last_offset + 1 - offset
        return max(0, left if header.record_count < 0 else min(left, 1))
    return max(0, min(header.last_offset + 1 - max(header.base_offset, offset), header.record_count))


def _counted_from(batch: Octets, header: BatchHeader, offset: int, most: int) -> int:
    """The records from an offset on, in a batch from which compaction has removed some. Raises CorruptRecordError.

    ``most``, if it takes longer than a few milliseconds to find out.
    """
    steps = count_from(batch, header, offset)
    try:
        for _ in range(_MOST_STEPS):
            next(steps)
    except StopIteration as done:
        return int(done.value)
    return most


class Look:
    """What a reader of committed records has left from ``offset`` on.

    Attributes:
        next: the log was read up to here.
        records: how many records the reader gets before ``next``.
        first: the header of the first batch with such a record, at ``first_position`` in its data; reading goes on in
            it at ``first_offset``.
    """

    __slots__ = ("_bytes", "first", "first_offset", "first_position", "next", "offset", "records")

    def __init__(self, offset: int) -> None:
        self.offset = self.next = offset
        self.records = 0
        self.first: BatchHeader | None = None
        self.first_offset = offset
        self.first_position = 0
        self._bytes = 0

    @property
    def is_over(self) -> bool:
        """Whether enough was read."""
        # What a read brings may be shorter by a batch.
        most = LOOK_BYTES if self.records == self.next - self.offset else MOST_LOOK_BYTES
        return self._bytes > most // 2

    @property
    def wanted(self) -> int:
        """The bytes to read next."""
        return MOST_LOOK_BYTES - LOOK_BYTES if self._bytes else LOOK_BYTES

    @property
    def time_ms(self) -> int | None:
        """About when the first record was written; None if none was found, or it has no time."""
        return None if self.first is None else time_in_batch(self.first, self.first_offset)

    def add(self, data: Octets, aborted: Iterable[tuple[int, int]] = ()) -> int:
        """Go on with the whole batches in ``data``, the first of which holds ``next``. Returns their bytes.

        ``aborted``: the first offset and producer id of each aborted transaction in them. Raises CorruptRecordError.
        """
        dropped = AbortedRecords(aborted)
        size = 0
        for position, header in iter_headers(data):
            size = position + header.size
            is_read = not dropped.has(data, position, header) and not header.attributes & CONTROL
            found = records_from(header, self.next) if is_read else 0
            if (
                found
                and header.base_offset < self.next
                and 0 < header.record_count <= header.last_offset_delta
            ):
                found = _counted_from(data[position : position + header.size], header, self.next, found)
            if found and self.first is None:
                self.first, self.first_position = header, position
                self.first_offset = max(header.base_offset, self.next)
            self.records += found
            self.next = max(self.next, header.last_offset + 1)
        self._bytes += size
        return size

    def unread(self, start: int, end: int) -> int:
        """The records that are left: those that were found, and the offsets behind them."""
        return min(unread(self.offset, start, end), self.records + unread(self.next, start, end))
