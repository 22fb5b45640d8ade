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
    def of(
        cls, batch: pa.RecordBatch | pa.Table, key: str = "key", value: str = "value", offset: str = "offset"
    ) -> Checksum:
        """Of all rows of a table with these columns. Raises KeyError for a missing one."""
        from .hashing import sum_of_hashes

        columns = [batch.column(name) for name in (key, value, offset)]
        return cls(batch.num_rows, sum_of_hashes(*columns))

    def to_text(self) -> str:
        """``count:total``, the total in hexadecimal digits."""
        return f"{self.count}:{self.total:016x}"

    @classmethod
    def from_text(cls, text: str) -> Checksum:
        """Parse what :meth:`to_text` made. Raises ValueError."""
        count, colon, total = text.partition(":")
        if not colon or not count.isdecimal() or len(total) != 16:
            raise ValueError(
                f"{text!r} is no checksum: a number of records, a colon and 16 hexadecimal digits are"
            )
        return cls(int(count), int(total, 16))
