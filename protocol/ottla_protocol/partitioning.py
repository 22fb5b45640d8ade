"""The partition of an internal topic that a key belongs to: all clients and brokers must agree on it.

Kafka: ``Utils.abs(key.hashCode) % partitions``, where ``hashCode`` is that of ``java.lang.String``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

LAG_TOPIC: Final = "__ottla_group_lag"
"""The topic with the history of groups' lag, whose records are in :mod:`.group_lag`."""


def java_string_hash(text: str) -> int:
    """``String.hashCode``: s[0]*31^(n-1) + … + s[n-1] over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (value * 31 + unit) & 0xFFFFFFFF
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(data), 2):
            value = (value * 31 + (data[position] << 8 | data[position + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


@lru_cache(maxsize=128)
def partition_for(key: str, partitions: int) -> int:
    """The partition, of ``partitions``, that a group id or transactional id belongs to.

    ``Utils.abs`` returns 0 for the one number whose absolute value doesn't fit an int.
    """
    value = java_string_hash(key)
    return (0 if value == -0x80000000 else abs(value)) % partitions
