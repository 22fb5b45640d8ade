"""The last offset of every key of a log's dirty part, in bounded memory, and the loops that fill and ask it.

A key is represented by 16 bytes of a hash, so an entry takes 24 bytes whatever the key's length: Kafka's
``SkimpyOffsetMap``, which uses MD5. As in Kafka, two keys with one hash count as one. That is as unlikely as with MD5
(2**-128 for a pair), and unlike with MD5 no one can provoke it: see docs/decisions/0011.

There are two maps. :func:`make_map` returns the compiled one if it is installed: it hashes keys by
SipHash-2-4 with a secret, and handles whole batches without Python. :class:`OffsetMap` is the other: it hashes keys by
BLAKE2b, and leaves the batches to its caller, one by one.

Entries of :class:`OffsetMap` live in tables of at most 65,536 slots, chosen by the hash. Each table grows by itself as
it fills: a small log takes a small map, growing needs at most one table of extra memory, and no step holds the
interpreter for long. A slot is three unsigned 64-bit numbers; the third is 0 in an empty slot::

    first half of the hash, second half of the hash, offset + 1
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla_broker.log.cleaner.pace import RECORDS_A_TURN
from ottla_broker.log.cleaner.records import Choice, choose, walk
from ottla_protocol.compiled import load_engine
from ottla_protocol.records.scan import RecordSpan

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla_protocol.records._records import OffsetMap as CompiledMap

ENTRY_BYTES: Final = 24
_HASH_BYTES: Final = 16
_LARGEST_TABLE: Final = 1 << 16
_FIRST_TABLE: Final = 251
_HALVES: Final = Struct("<QQ")
_INT32: Final = Struct(">i")
_LENGTH_AT: Final = 8
_LOG_OVERHEAD: Final = 12
# The length of the shortest message, of format 0; anything below is damage.
_LEAST_LENGTH: Final = 14

END: Final = 0
"""The data ends, or a batch isn't there as a whole."""
OTHER: Final = 1
"""A batch that the caller has to handle: compressed, transactional, control, an older format, or damaged."""
FULL: Final = 2
"""The map has no room for the next key."""


class Filtered(NamedTuple):
    """The outcome for some batches: up to ``position`` in the data they were handled, and ``why`` no further.

    ``runs`` is 32 bytes for each stretch of the output: size, last offset, largest timestamp, last offset of its batch.
    ``output`` is what stays; None if that is everything.
    """

    position: int
    why: int
    records_read: int
    records_kept: int
    keyless: int
    runs: bytes
    output: bytes | None


KeyMap: TypeAlias = "OffsetMap | CompiledMap"
"""Key to last offset. Used by one thread at a time; made for one pass over a log and dropped after it."""


def make_map(
    memory_bytes: int, load_factor: float, secret: bytes, pause: Callable[[int], None] | None = None
) -> KeyMap:
    """A map that takes at most ``memory_bytes``, ``load_factor`` of which holds entries.

    ``secret`` is 16 random bytes; ``pause`` is called with a number of records after work on them that kept the
    interpreter. Raises ValueError when a single key doesn't fit.
    """
    compiled = load_engine()
    if compiled is None:
        return OffsetMap(memory_bytes, load_factor, pause)
    slots = _checked_slots(memory_bytes, load_factor)
    made: KeyMap = compiled.OffsetMap(slots, min(slots, _FIRST_TABLE), load_factor, secret)
    return made


def _checked_slots(memory_bytes: int, load_factor: float) -> int:
    slots = memory_bytes // ENTRY_BYTES
    if slots < 2 or slots * load_factor <= 1:
        raise ValueError(
            f"an offset map of {memory_bytes} bytes has no room for a single key: "
            "raise log.cleaner.dedupe.buffer.size or lower log.cleaner.threads"
        )
    return slots


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
    """The map in Python. ``latest_offset`` is the last one that it covers; -1: nothing was read yet."""

    __slots__ = ("_pause", "_tables", "latest_offset")

    def __init__(
        self, memory_bytes: int, load_factor: float = 0.9, pause: Callable[[int], None] | None = None
    ) -> None:
        slots = _checked_slots(memory_bytes, load_factor)
        count = max(1, -(-slots // _LARGEST_TABLE))
        self._tables = [_Table(slots // count, load_factor) for _ in range(count)]
        self._pause = pause
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

    def read_keys(self, data: Buffer, start: int, first_dirty: int) -> tuple[int, int]:
        """Put the keys of the batches that begin at ``start``; the position reached, and why no further."""
        return start, _kind(data, start)

    def read_body(self, body: Buffer, count: int, base_offset: int, first_dirty: int) -> int:
        """Put the keys of a batch's ``count`` uncompressed records.

        END, FULL, or OTHER if they are damaged, unless that raises CorruptRecordError.
        """
        for record in self._walk(body, count):
            offset = base_offset + record.offset_delta
            if record.key is not None and offset >= first_dirty and not self.put(record.key, offset):
                return FULL
        return END

    def filter(
        self,
        data: Buffer,
        start: int,
        now_ms: int,
        delete_retention_ms: int,
        round_end: int,
        interval: int,
        last_offsets: Buffer,
    ) -> Filtered:
        """Filter the batches that begin at ``start``, by the rules in ``filter.py``.

        ``last_offsets`` are the last offsets of producers' last batches, ascending int64; a run of the output has at
        least ``interval`` bytes.
        """
        return Filtered(start, _kind(data, start), 0, 0, 0, b"", None)

    def filter_body(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        tombstones_go: bool,
        horizon: int,
    ) -> Choice:
        """Return what stays of a batch's uncompressed records; None if they are damaged, unless that raises."""
        latest, get = self.latest_offset, self.get

        def goes(record: RecordSpan) -> bool:
            offset = base_offset + record.offset_delta
            if offset > latest:
                return False
            if record.key is None or offset < get(record.key):
                return True
            return tombstones_go and not record.has_value

        data = bytes(body)
        return choose(self._walk(data, count), goes, data, base_timestamp, horizon, latest - base_offset)

    def _walk(self, body: Buffer, count: int) -> Iterator[RecordSpan]:
        pause = self._pause
        for number, record in enumerate(walk(bytes(body), count), start=1):
            if pause is not None and not number % RECORDS_A_TURN:
                pause(RECORDS_A_TURN)
            yield record


def _kind(data: Buffer, start: int) -> int:
    """OTHER if a batch begins at ``start``, END if it isn't there as a whole."""
    view = memoryview(data)
    left = len(view) - start
    if left < _LOG_OVERHEAD:
        return END
    (length,) = _INT32.unpack_from(view, start + _LENGTH_AT)
    return END if length >= _LEAST_LENGTH and length + _LOG_OVERHEAD > left else OTHER
