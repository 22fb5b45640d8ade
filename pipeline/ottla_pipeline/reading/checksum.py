"""A checksum of records that doesn't depend on their order, to compare landed pieces with the log.

A record's hash has 64 bits and covers its key, value and offset. A checksum is the number of records and the sum of
their hashes modulo 2**64. So checksums of disjoint sets add up, and a missing, doubled or changed record shows. It
doesn't protect against deliberate forgery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_MASK: Final = 2**64 - 1


@dataclass(frozen=True)
class Checksum:
    """``count`` records whose hashes sum up to ``total``."""

    count: int = 0
    total: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.count + other.count, (self.total + other.total) & _MASK)

    @classmethod
    def of(cls, batch: pa.RecordBatch | pa.Table) -> Checksum:
        """Of all rows, by their columns key, value and offset."""
        from .hashing import sum_of_hashes

        return cls(
            batch.num_rows, sum_of_hashes(*(batch.column(name) for name in ("key", "value", "offset")))
        )
