"""Chooses a record's partition: by the hash of its key, or, without a key, one partition for a whole batch.

Keys are hashed with murmur2 as in the Java client, so that a key has the same partition with every producer. Records
without a key fill whole batches of one partition before the next is drawn (KIP-480, KIP-794). Partitions with short
queues are drawn more often.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy

Partitioner: TypeAlias = Callable[[str, bytes | None, Sequence[int]], int]
"""``partitioner(topic, key, partitions)`` returns one of ``partitions``, which are in ascending order.

``key`` is the serialised key, None for a record without one.
"""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF

# Structs for keys of up to 32 words; longer keys are rare.
_words = tuple(Struct(f"<{count}I").unpack_from for count in range(33))

# The number of cached hashes: keys repeat, and a look-up costs a tenth of the hash. Long keys are not cached, which
# limits the cache to a few megabytes.
_REMEMBERED = 16_384
_LONGEST_REMEMBERED = 64

# From this number of keys on, numpy is faster than hashing one by one.
_WORTH_NUMPY = 64


def murmur2(data: bytes) -> int:
    """The hash of the Java client's ``Utils.murmur2``, as an unsigned number of 32 bits."""
    length = len(data)
    h = _SEED ^ length
    count = length >> 2
    if count:
        unpack = _words[count] if count <= 32 else Struct(f"<{count}I").unpack_from
        for k in unpack(data):
            k = k * _M & _MASK
            h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    rest = length & 3
    if rest:
        h = (h ^ int.from_bytes(data[-rest:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


_remembered_murmur2 = lru_cache(_REMEMBERED)(murmur2)


def partition_for_key(key: bytes, count: int) -> int:
    """The partition, of ``count``, that the Java client's default partitioner gives ``key``."""
    h = _remembered_murmur2(key) if len(key) <= _LONGEST_REMEMBERED else murmur2(key)
    return (h & 0x7FFFFFFF) % count


def deal(keys: Sequence[bytes], count: int) -> dict[int, list[int]]:
    """The indexes of ``keys`` by partition (``partition_for_key``); uses numpy if it is installed."""
    if len(keys) >= _WORTH_NUMPY:
        try:
            import numpy
        except ImportError:
            pass  # numpy is optional: the loop below does the same, more slowly
        else:
            partitions = _with_numpy(numpy, keys, count)
            order = partitions.argsort(kind="stable")
            found, starts = numpy.unique(partitions[order], return_index=True)
            parts = numpy.split(order, starts[1:])
            return {int(each): part.tolist() for each, part in zip(found, parts, strict=True)}
    dealt: dict[int, list[int]] = {}
    for place, key in enumerate(keys):
        dealt.setdefault(partition_for_key(key, count), []).append(place)
    return dealt


def _with_numpy(np: Any, keys: Sequence[bytes], count: int) -> Any:
    """The partition of each key. Keys of equal length form a matrix of bytes, hashed column by column."""
    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    result = np.empty(len(keys), dtype=np.int32)
    for length in np.unique(lengths).tolist():
        where = np.flatnonzero(lengths == length)
        if len(where) < _WORTH_NUMPY:
            result[where] = [partition_for_key(keys[at], count) for at in where.tolist()]
            continue
        chosen = keys if len(where) == len(keys) else [keys[at] for at in where.tolist()]
        result[where] = (_hash_equal_lengths(np, chosen, length) & np.uint32(0x7FFFFFFF)) % np.uint32(count)
    return result


def _hash_equal_lengths(np: Any, keys: Sequence[bytes], length: int) -> numpy.ndarray[Any, Any]:
    """murmur2 of keys of ``length`` bytes each. Products of uint32 arrays wrap at 32 bits, as Java's do."""
    m = np.uint32(_M)
    rows = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), length)
    h = np.full(len(keys), _SEED ^ length, dtype=np.uint32)
    whole = length & ~3
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4").astype(np.uint32, copy=False)
    for column in range(whole >> 2):
        k = words[:, column] * m
        k ^= k >> np.uint32(24)
        h = h * m ^ k * m
    if whole != length:
        for column in range(whole, length):
            h ^= rows[:, column].astype(np.uint32) << np.uint32(8 * (column - whole))
        h *= m
    h ^= h >> np.uint32(13)
    h *= m
    return h ^ h >> np.uint32(15)  # type: ignore[no-any-return]


class StickyPartition:
    """The current partition of a topic's records without a key.

    It changes when a batch is closed after at least ``batch_size`` bytes went to it: so slow producers fill batches
    too, and no batch is cut short.
    """

    __slots__ = ("_batch_size", "_produced", "_random", "partition")

    def __init__(self, batch_size: int, random: Random) -> None:
        self.partition: int | None = None
        """None until the next is drawn."""
        self._batch_size = batch_size
        self._produced = 0
        self._random = random

    def batch_closed(self, size: int) -> None:
        """A batch of ``size`` bytes of the current partition takes no more records."""
        self._produced += size
        if self._produced >= self._batch_size:
            self.forget()

    def forget(self) -> None:
        """Draw a new partition next time."""
        self.partition = None
        self._produced = 0

    def draw(self, available: Sequence[int], queued: Sequence[int]) -> int:
        """Draw one of ``available``; the weight of a partition with n batches ``queued`` is max(queued) + 1 - n."""
        if len(available) == 1:
            chosen = available[0]
        else:
            ceiling = max(queued) + 1
            sums = list(accumulate(ceiling - length for length in queued))
            chosen = available[bisect_right(sums, self._random.randrange(sums[-1]))]
        self.partition = chosen
        self._produced = 0
        return chosen
