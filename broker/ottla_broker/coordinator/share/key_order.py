"""Order by key within one share partition (``share.key.ordered``): which records wait for earlier ones of their key.

A pure state machine beside :class:`.InFlight`. The records of a key that aren't done with follow each other like this:

    acquired, by one member, in one fetch  |  available, in the order of their offsets

A fetch gets the first available records of keys of which nothing is acquired. When a record is given back, so are the
later ones of its key that the member has: only the first counts as delivered. So nothing of a key is handed out before
what precedes it is acknowledged or archived, and that is written. See docs/decisions/0019.

Keys are kept as hashes. Two keys with the same hash are taken for one, and wait for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence
from itertools import compress
from sys import maxsize
from typing import Final, NamedTuple

from ottla_broker.coordinator.share.in_flight import Acknowledgement
from ottla_broker.coordinator.share.states import Acknowledge
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import MAGIC, BatchHeader
from ottla_protocol.records.formats import Octets, decode_any

NO_KEY: Final = hash(None)
"""In place of a key's hash: the record has none, or there is no record. Its order doesn't matter."""

_ACCEPT: Final = int(Acknowledge.ACCEPT)

Ranges = list[tuple[int, int]]
"""Offsets, first and last included, that rise."""


def read_keys(data: Octets, position: int, header: BatchHeader) -> tuple[list[int], list[int]]:
    """The offsets of the batch at ``position`` and the hashes of their keys. Any thread may call this.

    Raises CorruptRecordError.
    """
    if header.is_control:
        return [], []
    if header.magic == MAGIC:
        from ottla_protocol.records.columns import decode_columns

        columns = decode_columns(data, position, header)
        return columns.offsets, list(map(hash, columns.keys))
    records = decode_any(data, position, header)
    return [record.offset for record in records], [hash(record.key) for record in records]


class Judged(NamedTuple):
    """A member's acknowledgements, compared with the order of keys.

    Attributes:
        applied: acknowledgements that count as they stand.
        taken_back: records that are released because an earlier record of the same key is.
        keys: the keys of all these records.
    """

    applied: list[Acknowledgement]
    taken_back: Ranges
    keys: Collection[int]


class Released(NamedTuple):
    """The offsets that are given back when a lock ends.

    Attributes:
        delivered: the first of each key, and what has no key: their deliveries count.
        taken_back: the later ones, whose deliveries don't count.
        keys: those of all these records.
    """

    delivered: Ranges
    taken_back: Ranges
    keys: Collection[int]


class KeyOrder:
    """Owned by the loop thread.

    Attributes:
        known_to: the keys of all offsets from the start to before this one are known.
    """

    __slots__ = ("_base", "_counts", "_held", "_keys", "_unwritten")

    def __init__(self, start: int) -> None:
        self._base = start
        self._keys: list[int] = []
        # How many of them are the same.
        self._counts: Counter[int] = Counter()
        # By key: the acquired offsets, rising.
        self._held: dict[int, list[int]] = {}
        # By key: how many of its changes may still be lost.
        self._unwritten: dict[int, int] = {}

    @property
    def known_to(self) -> int:
        return self._base + len(self._keys)

    # What is known

    def learn(self, offsets: Sequence[int], keys: Sequence[int], end: int, acquired: Ranges) -> None:
        """Add the keys of ``offsets``: those of all offsets before ``end`` are known from now on.

        ``acquired``: what members have of them already, since before the group's records were ordered.
        """
        known = self.known_to
        if end <= known:
            return
        new = [NO_KEY] * (end - known)
        for offset, key in zip(offsets, keys, strict=True):
            if known <= offset < end:
                new[offset - known] = key
        self._keys += new
        self._counts.update(new)
        for first, last in acquired:
            self.acquire([(max(first, known), min(last, end - 1))])

    def trim(self, start: int) -> None:
        """Forget what lies before ``start``: it is done with."""
        gone = start - self._base
        if gone <= 0:
            return
        if len(self._keys) > gone:
            done = Counter(self._keys[:gone])
            for key in self._held.keys() & done.keys():
                self._hold(key, [offset for offset in self._held[key] if offset >= start])
            counts = self._counts
            for key, count in done.items():
                if counts[key] == count:
                    del counts[key]
                else:
                    counts[key] -= count
            del self._keys[:gone]
        else:
            self._keys.clear()
            self._counts.clear()
            self._held.clear()
        self._base = start

    def cut(self, end: int) -> None:
        """Forget what lies from ``end`` on: the log ends there."""
        if end >= self.known_to:
            return
        del self._keys[max(end - self._base, 0) :]
        self._counts = Counter(self._keys)
        self._base = min(self._base, end)
        for key, offsets in list(self._held.items()):
            self._hold(key, [offset for offset in offsets if offset < end])

    # Handing out

    def choose(self, available: Iterable[tuple[int, int]], most: int, members: int) -> Ranges:
        """The first ``most`` of the ``available`` ranges' records that may be handed out to one member.

        With several ``members``, one gets its part of the keys, so that the others find some too.
        """
        most_keys = maxsize if members < 2 else max(1, -(-len(self._counts) // members))
        base, keys, known_to = self._base, self._keys, self.known_to
        ranges: Ranges = []
        free = self._counts.keys() - self._held.keys() - self._unwritten.keys()
        if not free:
            return ranges
        is_free = free.__contains__
        chosen: set[int] = set()
        for first, last in available:
            low, high = max(first, base), min(last + 1, known_to)
            # Most of them have to wait: these are passed over without a step of Python for each.
            for offset in compress(range(low, high), map(is_free, keys[low - base : high - base])):
                key = keys[offset - base]
                if key != NO_KEY and key not in chosen:
                    if len(chosen) >= most_keys:
                        continue
                    chosen.add(key)
                if ranges and ranges[-1][1] == offset - 1:
                    ranges[-1] = ranges[-1][0], offset
                else:
                    ranges.append((offset, offset))
                most -= 1
                if not most:
                    return ranges
        return ranges

    def acquire(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Note that a member has these offsets, which rise and follow what is acquired of their keys."""
        base, keys, held, known_to = self._base, self._keys, self._held, self.known_to
        for first, last in ranges:
            for offset in range(max(first, base), min(last + 1, known_to)):
                key = keys[offset - base]
                if key in held:
                    held[key].append(offset)
                elif key != NO_KEY:
                    held[key] = [offset]

    # Giving up

    def judge(self, batches: Sequence[Acknowledgement]) -> Judged:
        """Judge a member's acknowledgements, which rise and name what it has acquired.

        Raises KafkaError: INVALID_RECORD_STATE for a record that is accepted while the member still has an earlier one
        of its key; then nothing has changed.
        """
        accepted = self._accepted(batches)
        if accepted is not None:
            return accepted
        released: dict[int, int] = {}
        gone: dict[int, set[int]] = {}
        # By key: how many of the first that are held are done with by now.
        heads: dict[int, int] = {}
        applied: list[Acknowledgement] = []
        for first, last, types in batches:
            for offset in range(max(first, self._base), last + 1):
                kind = types[0] if len(types) == 1 else types[offset - first]
                key = self._key_of(offset)
                if key == NO_KEY or kind == Acknowledge.RENEW:
                    _add(applied, offset, kind)
                    continue
                if kind in (Acknowledge.ACCEPT, Acknowledge.RELEASE):
                    if key in released:
                        continue  # Taken back below.
                    if kind == Acknowledge.RELEASE:
                        released[key] = offset
                    else:
                        heads[key] = self._check_first(key, offset, gone.get(key, ()), heads.get(key, 0))
                gone.setdefault(key, set()).add(offset)
                _add(applied, offset, kind)
        taken_back = []
        for key, done in gone.items():
            left = [offset for offset in self._held.get(key, ()) if offset not in done]
            after = released.get(key)
            if after is not None:
                taken_back += [offset for offset in left if offset > after]
                left = [offset for offset in left if offset < after]
            self._hold(key, left)
        return Judged(applied, _ranges(taken_back), gone.keys())

    def _accepted(self, batches: Sequence[Acknowledgement]) -> Judged | None:
        """:meth:`judge` where all is accepted, in order, as it mostly is; None: it isn't, and nothing has changed."""
        base, keys, held, end = self._base, self._keys, self._held, self.known_to
        # By key: how many of the first that are held are done with.
        heads: dict[int, int] = {}
        for first, last, types in batches:
            if len(types) > 1 or types[0] != _ACCEPT or last >= end:
                return None
            for offset in range(max(first, base), last + 1):
                key = keys[offset - base]
                if key == NO_KEY:
                    continue
                head = heads.get(key, 0)
                try:
                    if held[key][head] != offset:
                        return None
                except LookupError:
                    return None
                heads[key] = head + 1
        for key, head in heads.items():
            if head == len(held[key]):
                del held[key]
            else:
                del held[key][:head]
        return Judged(list(batches), [], heads.keys())

    def release(self, ranges: Iterable[tuple[int, int]]) -> Released:
        """Give back what is acquired of ``ranges``, which rise, and the later records of the same keys."""
        delivered: list[int] = []
        taken_back: list[int] = []
        given_back: set[int] = set()
        for first, last in ranges:
            for offset in range(first, last + 1):
                key = self._key_of(offset)
                held = self._held.get(key, [])
                if key == NO_KEY:
                    delivered.append(offset)
                    continue
                if offset not in held:
                    continue  # Taken back, with the first of its key.
                delivered.append(offset)
                given_back.add(key)
                taken_back += [each for each in held if each > offset]
                self._hold(key, [each for each in held if each < offset])
        return Released(_ranges(delivered), _ranges(taken_back), given_back)

    # Persisting

    def writing(self, keys: Iterable[int]) -> None:
        """Hand out nothing of these keys until :meth:`written`: the change before it could be lost."""
        for key in keys:
            self._unwritten[key] = self._unwritten.get(key, 0) + 1

    def written(self, keys: Iterable[int]) -> None:
        for key in keys:
            left = self._unwritten[key] - 1
            if left:
                self._unwritten[key] = left
            else:
                del self._unwritten[key]

    def _check_first(self, key: int, offset: int, done: Container[int], head: int) -> int:
        """Check that what is held of the key before ``offset`` is done with; returns how many of the first are."""
        held = self._held.get(key, [])
        while head < len(held) and held[head] in done:
            head += 1
        if head < len(held) and held[head] < offset:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                f"The record at offset {offset} cannot be accepted before the one at offset {held[head]}, which has the"
                " same key: the group's records are ordered by key (share.key.ordered).",
            )
        return head

    def _key_of(self, offset: int) -> int:
        at = offset - self._base
        return self._keys[at] if 0 <= at < len(self._keys) else NO_KEY

    def _hold(self, key: int, offsets: list[int]) -> None:
        if offsets:
            self._held[key] = offsets
        else:
            self._held.pop(key, None)


def _add(applied: list[Acknowledgement], offset: int, kind: int) -> None:
    """Add an acknowledgement of one offset, to the last one if it goes on from that."""
    if applied and applied[-1].last == offset - 1 and applied[-1].types[0] == kind:
        applied[-1] = applied[-1]._replace(last=offset)
    else:
        applied.append(Acknowledgement(offset, offset, [kind]))


def _ranges(offsets: Iterable[int]) -> Ranges:
    found: Ranges = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset - 1:
            found[-1] = found[-1][0], offset
        else:
            found.append((offset, offset))
    return found
