"""The index of aborted transactions of a segment.

``<base>.txnindex`` has an entry of 34 bytes, big endian, for each abort marker in the segment, in the markers' order
(Kafka's TransactionIndex)::

    version:            int16   0
    producer_id:        int64
    first_offset:       int64   of the transaction's first batch
    last_offset:        int64   of the marker
    last_stable_offset: int64   below it no transaction was open after the marker

A transaction belongs to the segment of its marker, and may have begun in an earlier one. Entries are read from the
file, which the operating system caches. Memory holds a summary of 24 bytes for each 128 entries, so that neither a long
transaction nor millions of short ones make a fetch search for long.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla_broker.log.files import CorruptFileError, Files

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
ENTRY_SIZE: Final = _ENTRY.size
_FIRST_AT: Final = 10
_LAST_AT: Final = 18
_STABLE_AT: Final = 26
_BLOCK: Final = 128
_CHUNK: Final = 256 * _BLOCK
"""Entries per read while the summary is made: about 1 MiB."""


class AbortedTransaction(NamedTuple):
    """An entry of the index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(aborted: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in aborted)


def decode(data: bytes) -> list[AbortedTransaction]:
    """The entries of a file. Raises CorruptFileError."""
    if len(data) % ENTRY_SIZE:
        raise CorruptFileError(f"{len(data)} bytes are not a whole number of entries of {ENTRY_SIZE}")
    entries: list[AbortedTransaction] = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptFileError(f"entry {len(entries)} has version {version}, expected {_VERSION}")
        entries.append(AbortedTransaction(*fields))
    return entries


def read(files: Files, path: str) -> list[AbortedTransaction]:
    """The entries of the file at ``path``; none without a file. Raises CorruptFileError, OSError."""
    try:
        data = files.read_all(path)
    except FileNotFoundError:
        return []
    return decode(data)


class TxnIndex:
    """The aborted transactions of one segment. Owned by the log's thread.

    Attributes:
        count: the number of entries.
    """

    __slots__ = ("_firsts", "_lasts", "_stables", "_stale", "_summarised", "count", "file")

    def __init__(self, files: Files, path: str, *, new: bool) -> None:
        """``new``: the segment has just been made, so a file of that name is a leftover."""
        self.file = files.file(path)
        self.count = 0 if new else self.file.size() // ENTRY_SIZE
        self._stale = new
        # For each block of entries: the least first offset; the last offset and last stable offset of its last entry.
        self._firsts = array("q")
        self._lasts = array("q")
        self._stables = array("q")
        # How many entries the summary covers.
        self._summarised = 0

    def add(self, entry: AbortedTransaction) -> None:
        """Add the transaction of the segment's last marker. Raises OSError."""
        self.file.create()
        if self._stale:
            self.file.truncate(0)
            self._stale = False
        self.file.write(encode((entry,)), self.count * ENTRY_SIZE)
        if self._summarised == self.count:
            self._summarise(array("q", [entry[1]]), array("q", [entry[2]]), array("q", [entry[3]]))
        self.count += 1

    def extend(self, entries: Sequence[AbortedTransaction]) -> None:
        """Add the transactions of the segment's last markers, in their order. Raises OSError."""
        if not entries:
            return
        self.add(entries[0])
        self.file.write(encode(entries[1:]), self.count * ENTRY_SIZE)
        self.count += len(entries) - 1

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of markers at or after ``offset``. Raises OSError, CorruptFileError."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._read(middle, 1)[0].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        if low < self.count:
            self.count = low
            self.file.truncate(low * ENTRY_SIZE)
            self.file.close()
            del self._firsts[:], self._lasts[:], self._stables[:]
            self._summarised = 0

    def overlapping(
        self, start: int, end: int, limit: int = sys.maxsize
    ) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that reach into the offsets from ``start`` to before ``end``; about ``limit`` at most.

        Also whether later segments have no more of them, or the limit was reached (``collectAbortedTxns``). Raises
        OSError, CorruptFileError.
        """
        while self._summarised < self.count:
            self._summarise_chunk()
        found: list[AbortedTransaction] = []
        firsts, stables = self._firsts, self._stables
        for block in range(bisect_left(self._lasts, start), len(firsts)):
            if firsts[block] < end:
                found += [
                    entry
                    for entry in self._read(block * _BLOCK, _BLOCK)
                    if entry.last_offset >= start and entry.first_offset < end
                ]
            if stables[block] >= end or len(found) > limit:
                return found, True
        return found, False

    def close(self) -> None:
        """Close the file; it opens again on its next use."""
        self.file.close()

    def _read(self, slot: int, count: int) -> list[AbortedTransaction]:
        count = min(count, self.count - slot)
        data = self.file.read(slot * ENTRY_SIZE, count * ENTRY_SIZE)
        if len(data) != count * ENTRY_SIZE:
            raise CorruptFileError(f"{self.file.path} is shorter than it was")
        return decode(data)

    def _summarise_chunk(self) -> None:
        slot = self._summarised
        count = min(_CHUNK, self.count - slot)
        data = self.file.read(slot * ENTRY_SIZE, count * ENTRY_SIZE)
        if len(data) != count * ENTRY_SIZE:
            raise CorruptFileError(f"{self.file.path} is shorter than it was")
        self._summarise(_column(data, _FIRST_AT), _column(data, _LAST_AT), _column(data, _STABLE_AT))

    def _summarise(self, firsts: array[int], lasts: array[int], stables: array[int]) -> None:
        """Take the next entries, by their columns, into the summary."""
        at = 0
        while at < len(firsts):
            room = _BLOCK - self._summarised % _BLOCK
            until = min(at + room, len(firsts))
            first = min(firsts[at:until])
            if room == _BLOCK:
                self._firsts.append(first)
                self._lasts.append(lasts[until - 1])
                self._stables.append(stables[until - 1])
            else:
                self._firsts[-1] = min(self._firsts[-1], first)
                self._lasts[-1] = lasts[until - 1]
                self._stables[-1] = stables[until - 1]
            self._summarised += until - at
            at = until


def _column(data: bytes, at: int) -> array[int]:
    """The 64-bit field at ``at`` of all entries: eight strided copies instead of a loop over them."""
    column = bytearray(len(data) // ENTRY_SIZE * 8)
    for byte in range(8):
        place = 7 - byte if sys.byteorder == "little" else byte
        column[place::8] = data[at + byte :: ENTRY_SIZE]
    numbers = array("q")
    numbers.frombytes(column)
    return numbers
