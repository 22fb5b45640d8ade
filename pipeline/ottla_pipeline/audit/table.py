"""The table's side of an audit: the offsets of its rows, all partitions in one pass over three columns."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from .dead import by_place
from .runs import Tally

if TYPE_CHECKING:
    from ottla_pipeline.landing.ledger import Place
    from ottla_pipeline.landing.tables import Names, Table

_BATCH_ROWS = 1 << 18


def tally_rows(
    table: Table, names: Names, topics: Collection[str] | None, tell: Callable[[int], None]
) -> dict[Place, Tally]:
    """How often each offset of each partition is in the table. ``tell`` gets numbers of rows as they are read.

    ``topics`` None: of all that are in it. Raises KeyError for a column that the table hasn't got.
    """
    columns = [names.topic, names.partition, names.offset]
    for name in columns:
        if name not in table.schema().names:
            raise KeyError(name)
    found: dict[Place, Tally] = {}
    for batch in table.dataset().to_batches(columns=columns, batch_size=_BATCH_ROWS):
        for place, offsets in by_place(batch):
            if topics is None or place[0] in topics:
                found.setdefault(place, Tally()).add(offsets)
        tell(len(batch))
    return found
