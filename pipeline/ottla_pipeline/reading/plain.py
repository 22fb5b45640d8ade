"""Decodes batches by ``ottla_client``, where the compiled record engine is missing, and those that it finds unusual.

It defines what is accepted and refused: ``engine`` has to agree with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ottla_client.lowlevel import MAX_HEADERS, Part, to_arrow
from ottla_protocol.records.batch import read_header
from ottla_protocol.records.columns import decode_batches

from .batches import AT
from .columns import micros, record_batch
from .schema import HEADER_LIST

if TYPE_CHECKING:
    from .batches import Octets, Table
    from .ranges import OffsetRange


class PlainEngine:
    """Decodes groups of batches. A group has one timestamp type."""

    def __init__(self, range: OffsetRange, wanted: tuple[str, ...]) -> None:
        self._range = range
        self._wanted = wanted

    def decode(self, data: Octets, table: Table, first: int) -> list[pa.RecordBatch]:
        """The range's records from offset ``first`` on, of the batches in ``table``, whose bytes are in ``data``.

        Raises CorruptRecordError if a batch is broken.
        """
        view = data.data
        batches = [(at, read_header(view, at)) for at in table[:, AT].tolist()]
        columns = decode_batches(view, batches, max_headers=MAX_HEADERS)
        if not columns.count:
            return []
        range = self._range
        table_of = to_arrow([Part(range.topic, range.partition, columns)], headers="headers" in self._wanted)
        made = []
        for batch in table_of.to_batches():
            offsets = batch.column("offset")
            low, high = pc.min_max(offsets).as_py().values()
            if low < first or high >= range.end:
                inside = pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, range.end))
                batch = batch.filter(inside)
            if batch.num_rows:
                made.append(self._typed(batch))
        return made

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in batch.schema.names}
        if "timestamp" in self._wanted:
            columns["timestamp"] = micros(columns["timestamp"].view(pa.int64()).to_numpy())
        if "headers" in self._wanted:
            columns["headers"] = columns["headers"].cast(HEADER_LIST)
        return record_batch(columns, self._wanted)
