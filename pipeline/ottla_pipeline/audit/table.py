"""The table's side of an audit: the offsets of its rows, all partitions in one pass over three columns."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from .dead import by_partition
from .runs import OffsetCounts

if TYPE_CHECKING:
    from ottla_client import TopicPartition
    from ottla_pipeline.landing.tables import Names, Table

_BATCH_ROWS = 1 << 18


def count_rows(
    table: Table, names: Names, topics: Collection[str], advance: Callable[[int], None]
) -> dict[TopicPartition, OffsetCounts]:
    """How often each offset of each partition is in the table. ``advance`` gets numbers of rows as they are read.

    Raises KeyError for a column that the table hasn't got.
    """
    columns = [names.topic, names.partition, names.offset]
    for name in columns:
        if name not in table.schema().names:
            raise KeyError(name)
    found: dict[TopicPartition, OffsetCounts] = {}
    for batch in table.dataset().to_batches(columns=columns, batch_size=_BATCH_ROWS):
        for at, offsets in by_partition(batch):
            if at[0] in topics:
                found.setdefault(at, OffsetCounts()).add(offsets)
        advance(len(batch))
    return found
