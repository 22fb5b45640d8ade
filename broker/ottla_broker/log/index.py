"""Sparse indexes of a segment: offset to position, and timestamp to offset.

``<base>.index``, entries of 8 bytes, big endian, sorted by both fields (Kafka's OffsetIndex)::

    relative offset: int32   last offset of an append, minus the segment's base offset
    position:        int32   where the append's first batch begins in the .log file

``<base>.timeindex``, entries of 12 bytes, big endian, sorted by both fields (Kafka's TimeIndex)::

    timestamp:       int64   the largest timestamp in the segment up to this entry
    relative offset: int32   last offset of the batch that has it, minus the base offset

New entries stay in memory, where readers of a growing segment look, and are written at flush, roll and close. Entries
that were on disk before stay there and are searched with positional reads, so an index that isn't read costs no memory.
After an unclean stop the index is rebuilt from the log, so an unwritten tail is no loss. Kafka preallocates the file of
an active segment and trims it at close; here it is never longer than its entries.

Owned by the log's thread; :meth:`SparseIndex.floor` may be called from another thread on a sealed segment.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final

from ottla_broker.log.files import CorruptFileError, Files, LogFile

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")
MAX_RELATIVE: Final = 2**31 - 1


class SparseIndex:
    """Sorted pairs of integers: a prefix in the file, the rest in memory."""

    __slots__ = ("_keys", "_on_disk", "_stale", "_values", "_written", "file")

    _entry: Struct
    _key_type: str

    def __init__(self, files: Files, path: str, *, new: bool) -> None:
        self.file: LogFile = files.file(path)
        self._keys = array(self._key_type)
        self._values = array("i")
        # Entries that are only in the file, and all entries in the file.
        self._on_disk = 0 if new else self.file.size() // self._entry.size
        self._written = self._on_disk
        # Whether the file may be longer than its entries: the next write truncates it.
        self._stale = new

    def __len__(self) -> int:
        return self._on_disk + len(self._keys)

    @property
    def byte_size(self) -> int:
        """Bytes that the index takes on disk once it is written."""
        return len(self) * self._entry.size

    def entry(self, slot: int) -> tuple[int, int]:
        """Key and value of the entry ``slot``, counted from 0. Raises CorruptFileError, OSError."""
        if slot >= self._on_disk:
            return self._keys[slot - self._on_disk], self._values[slot - self._on_disk]
        size = self._entry.size
        data = self.file.read(slot * size, size)
        if len(data) != size:
            raise CorruptFileError(f"{self.file.path} is shorter than it was")
        key, value = self._entry.unpack(data)
        return key, value

    def floor_slot(self, key: int) -> int:
        """The last entry whose key is at most ``key``; -1 when there is none."""
        keys = self._keys
        if keys and key >= keys[0]:
            return self._on_disk + bisect_right(keys, key) - 1
        low, high = 0, self._on_disk
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def floor(self, key: int) -> tuple[int, int] | None:
        """The last pair whose key is at most ``key``. Raises CorruptFileError, OSError."""
        slot = self.floor_slot(key)
        return None if slot < 0 else self.entry(slot)

    def add(self, key: int, value: int) -> None:
        """Append a pair, with neither key nor value smaller than the last."""
        self._keys.append(key)
        self._values.append(value)

    def write(self) -> None:
        """Bring the file up to date, without waiting for the device. Raises OSError."""
        if not self._written:
            self.file.create()  # An empty index is a file of no bytes, not a missing file.
        first = self._written - self._on_disk
        if first < len(self._keys):
            data = self._encode(self._keys[first:], self._values[first:])
            self.file.write(data, self._written * self._entry.size)
            self._written = self._on_disk + len(self._keys)
        if self._stale:
            size = self._written * self._entry.size
            if self.file.size() > size:
                self.file.truncate(size)
            self._stale = False

    def seal(self) -> None:
        """Write all entries and drop them from memory. Raises OSError."""
        self.write()
        self._on_disk = self._written
        self._keys = array(self._key_type)
        self._values = array("i")
        self.file.close()

    def clear(self) -> None:
        """Remove all entries; the next write overwrites or truncates the file."""
        del self._keys[:], self._values[:]
        self._on_disk = self._written = 0
        self._stale = True

    def keep(self, count: int) -> None:
        """Keep only the first ``count`` entries, in memory and in the file. Raises OSError."""
        count = min(count, len(self))
        in_memory = max(0, count - self._on_disk)
        del self._keys[in_memory:]
        del self._values[in_memory:]
        self._on_disk = min(self._on_disk, count)
        if self._written > count or self.file.size() > count * self._entry.size:
            self._written = min(self._written, count)
            self.file.truncate(self._written * self._entry.size)

    def _encode(self, keys: array[int], values: array[int]) -> bytes:
        return b"".join(map(self._entry.pack, keys, values))

    def check(self, segment_size: int) -> None:
        """Compare the file's length and last entry with the segment. Raises CorruptFileError, OSError."""
        if self.file.size() % self._entry.size:
            raise CorruptFileError(f"{self.file.path} does not hold a whole number of entries")
        count = len(self)
        if not count:
            return
        key, value = self.entry(count - 1)
        if key < 0 or value < 0 or (count > 1 and (key, value) <= self.entry(0)):
            raise CorruptFileError(f"{self.file.path} ends in an entry that is out of order")
        self._check_last(value, segment_size)

    def _check_last(self, value: int, segment_size: int) -> None:
        """Refuse a last value that the segment can't have."""


class OffsetIndex(SparseIndex):
    """Keys are relative offsets, values positions."""

    __slots__ = ()
    _entry = OFFSET_ENTRY
    _key_type = "i"

    def _encode(self, keys: array[int], values: array[int]) -> bytes:
        pairs = array("i", bytes(8 * len(keys)))
        pairs[0::2] = keys
        pairs[1::2] = values
        if sys.byteorder == "little":
            pairs.byteswap()
        return pairs.tobytes()

    def _check_last(self, value: int, segment_size: int) -> None:
        if value >= segment_size:
            raise CorruptFileError(
                f"{self.file.path} points past the end of its segment ({value} of {segment_size})"
            )

    def floor_position(self, position: int) -> int:
        """The largest indexed position that is at most ``position``; -1 when there is none."""
        values = self._values
        if values and position >= values[0]:
            return values[bisect_right(values, position) - 1]
        low, high = 0, self._on_disk
        found = -1
        while low < high:
            middle = (low + high) // 2
            value = self.entry(middle)[1]
            if value <= position:
                low = middle + 1
                found = value
            else:
                high = middle
        return found

    def offset_from(self, position: int) -> int | None:
        """The relative offset of the first entry at ``position`` or after it (Kafka's fetchUpperBoundOffset)."""
        values = self._values
        if values and position > values[0]:
            slot = bisect_left(values, position)
            return self._keys[slot] if slot < len(values) else None
        low, high = 0, self._on_disk
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < position:
                low = middle + 1
            else:
                high = middle
        return self.entry(low)[0] if low < len(self) else None


class TimeIndex(SparseIndex):
    """Keys are timestamps in ms, values relative offsets."""

    __slots__ = ()
    _entry = TIME_ENTRY
    _key_type = "q"

    def last(self) -> tuple[int, int] | None:
        """The last pair: the segment's largest indexed timestamp."""
        return self.entry(len(self) - 1) if len(self) else None
