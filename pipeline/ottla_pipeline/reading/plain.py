"""Decodes batches by ``ottla_protocol``, with numpy or record by record: for small reads and unusual batches.

It defines what is accepted and refused: the compiled loops have to agree with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla_client.lowlevel import MAX_HEADERS, Part, to_arrow
from ottla_protocol.records.batch import read_header
from ottla_protocol.records.columns import decode_batches

from .batches import AT
from .columns import array, record_batch
from .schema import HEADER_LIST

if TYPE_CHECKING:
    from .batches import Octets, Table
    from .ranges import OffsetRange

MAX_MILLIS = (2**63 - 1) // 1000
"""The most milliseconds that fit into 64 bits as microseconds."""


class PlainEngine:
    """Decodes groups of batches. A group has one timestamp type."""

    walk = None

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
            columns["timestamp"] = _micros(columns["timestamp"])
        if "headers" in self._wanted:
            columns["headers"] = columns["headers"].cast(HEADER_LIST)
        return record_batch(columns, self._wanted)


def _micros(millis: pa.Array) -> pa.Array:
    """Milliseconds as microseconds; null where they don't fit into 64 bits."""
    numbers = np.frombuffer(millis.buffers()[1], np.int64)[millis.offset : millis.offset + len(millis)]
    fits = (numbers >= -MAX_MILLIS) & (numbers <= MAX_MILLIS)
    if fits.all():
        return array(pa.timestamp("us", "UTC"), len(numbers), None, numbers * 1000)
    bits = np.packbits(fits, bitorder="little")
    return array(pa.timestamp("us", "UTC"), len(numbers), bits, np.where(fits, numbers, 0) * 1000, nulls=-1)
