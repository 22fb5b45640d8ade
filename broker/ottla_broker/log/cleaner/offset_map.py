"""The last offset of every key of a log's dirty part, in bounded memory.

A key is represented by 16 bytes of its BLAKE2b hash, so an entry takes 24 bytes whatever the key's length: Kafka's
``SkimpyOffsetMap``, which uses MD5. As in Kafka, two keys with one hash count as one. With BLAKE2b that is as unlikely
as with MD5 (2**-128 for a pair) and, unlike with MD5, can't be provoked.

Entries live in tables of at most 65,536 slots, chosen by the hash. Each table grows by itself as it fills: a small log
takes a small map, growing needs at most one table of extra memory, and no step holds the interpreter for long.

A slot is three unsigned 64-bit numbers; the third is 0 in an empty slot::

    first half of the hash, second half of the hash, offset + 1
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from struct import Struct
from typing import Final

ENTRY_BYTES: Final = 24
_HASH_BYTES: Final = 16
_LARGEST_TABLE: Final = 1 << 16
_FIRST_TABLE: Final = 251
_HALVES: Final = Struct("<QQ")


def prime_at_most(number: int) -> int:
    """The largest prime that is not above ``number``, which is at least 2."""
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number


class _Table:
    """Open addressing with double hashing; a prime number of slots, so that a probe visits all of them."""

    __slots__ = ("_largest", "_load_factor", "_room", "_slots", "_words", "count")

    def __init__(self, largest: int, load_factor: float) -> None:
        self._largest = prime_at_most(largest)
        self._load_factor = load_factor
        self.count = 0
        self._allocate(_FIRST_TABLE)

    def _allocate(self, slots: int) -> None:
        self._slots = min(prime_at_most(slots), self._largest)
        self._words = array("Q", bytes(ENTRY_BYTES * self._slots))
        # One slot always stays empty: it ends the search for a key that isn't in the table.
        self._room = min(self._slots - 1, max(1, int(self._slots * self._load_factor)))

    def put(self, first: int, second: int, offset: int) -> bool:
        words = self._words
        word = self._slot(words, first, second)
        if words[word + 2]:
            words[word + 2] = offset + 1
            return True
        if self.count >= self._room:
            if self._slots == self._largest:
                return False
            words = self._grow()
            word = self._slot(words, first, second)
        words[word] = first
        words[word + 1] = second
        words[word + 2] = offset + 1
        self.count += 1
        return True

    def get(self, first: int, second: int) -> int:
        words = self._words
        return words[self._slot(words, first, second) + 2] - 1

    def _slot(self, words: array[int], first: int, second: int) -> int:
        """Index of the first word of the hash's slot, or of the empty slot where it belongs."""
        slots = self._slots
        at = first % slots
        word = 3 * at
        if (words[word] == first and words[word + 1] == second) or not words[word + 2]:
            return word
        step = 1 + second % (slots - 1)
        while True:
            at = (at + step) % slots
            word = 3 * at
            if (words[word] == first and words[word + 1] == second) or not words[word + 2]:
                return word

    def _grow(self) -> array[int]:
        old = self._words
        self._allocate(4 * self._slots)
        new = self._words
        for word in range(0, len(old), 3):
            if old[word + 2]:
                first = old[word]
                second = old[word + 1]
                target = self._slot(new, first, second)
                new[target] = first
                new[target + 1] = second
                new[target + 2] = old[word + 2]
        return new


class OffsetMap:
    """Key to last offset. Used by one thread at a time; made for one pass over a log and dropped after it."""

    __slots__ = ("_tables", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        """A map that takes at most ``memory_bytes``, ``load_factor`` of which holds entries.

        Raises ValueError when a single key doesn't fit.
        """
        slots = memory_bytes // ENTRY_BYTES
        if slots < 2 or slots * load_factor <= 1:
            raise ValueError(
                f"an offset map of {memory_bytes} bytes has no room for a single key: "
                "raise log.cleaner.dedupe.buffer.size or lower log.cleaner.threads"
            )
        count = max(1, -(-slots // _LARGEST_TABLE))
        self._tables = [_Table(slots // count, load_factor) for _ in range(count)]
        # The last offset that the map covers; -1: nothing was read yet.
        self.latest_offset = -1

    def put(self, key: bytes, offset: int) -> bool:
        """Set the last offset of ``key``, in rising order; False when the key is new and doesn't fit."""
        first: int
        second: int
        first, second = _HALVES.unpack(blake2b(key, digest_size=_HASH_BYTES).digest())
        tables = self._tables
        if not tables[second % len(tables)].put(first, second, offset):
            return False
        self.latest_offset = offset
        return True

    def get(self, key: bytes) -> int:
        """The last offset of ``key``; -1 when it isn't in the map."""
        first: int
        second: int
        first, second = _HALVES.unpack(blake2b(key, digest_size=_HASH_BYTES).digest())
        tables = self._tables
        return tables[second % len(tables)].get(first, second)

    def seen_up_to(self, offset: int) -> None:
        """Record that the log was read up to ``offset``, whether or not that record has a key."""
        self.latest_offset = max(self.latest_offset, offset)

    def __len__(self) -> int:
        return sum(table.count for table in self._tables)
