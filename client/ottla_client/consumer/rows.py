"""Decoded records of one partition as columns, before they become objects.

All work per record is done by ``map`` and ``zip`` over whole columns.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from ..types import ConsumerRecord, TimestampType

_new_tuple = tuple.__new__


@dataclass(eq=False, slots=True)
class Rows:
    """Records as columns of equal length, keys and values deserialized. They don't change.

    ``deliveries`` are the delivery counts of records of a share group.
    """

    topic: str
    partition: int
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[Any]
    values: Sequence[Any]
    headers: Sequence[Any]
    kind: TimestampType
    deliveries: Sequence[int] | None = None
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = len(self.offsets)

    def cut(self, start: int, stop: int) -> Rows:
        """The records from ``start`` to before ``stop``."""
        if start <= 0 and stop >= self.count:
            return self
        return Rows(
            self.topic,
            self.partition,
            self.offsets[start:stop],
            self.timestamps[start:stop],
            self.keys[start:stop],
            self.values[start:stop],
            self.headers[start:stop],
            self.kind,
            None if self.deliveries is None else self.deliveries[start:stop],
        )

    def records(self) -> Iterator[ConsumerRecord[Any, Any]]:
        fields = zip(
            repeat(self.topic, self.count),
            repeat(self.partition),
            self.offsets,
            self.timestamps,
            self.keys,
            self.values,
            self.headers,
            repeat(self.kind),
            repeat(None) if self.deliveries is None else self.deliveries,
            strict=False,
        )
        return map(_new_tuple, repeat(ConsumerRecord), fields)


NO_ROWS = Rows("", -1, (), (), (), (), (), TimestampType.CREATE_TIME)


def to_records(runs: Sequence[Rows]) -> list[ConsumerRecord[Any, Any]]:
    """All records in one list.

    The garbage collector is off meanwhile: it would scan the new objects repeatedly and find nothing. Call this right
    before handing the records out. If the application then drops the previous ones, as loops over ``poll`` do, the
    number of objects doesn't grow and the collector doesn't run. That saves 90 of 510 ns per record.
    """
    records: list[ConsumerRecord[Any, Any]] = []
    resting = gc.isenabled()
    if resting:
        gc.disable()
    try:
        for rows in runs:
            records += rows.records()
    finally:
        if resting:
            gc.enable()
    return records
