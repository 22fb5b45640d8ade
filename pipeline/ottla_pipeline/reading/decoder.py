"""Turns a range's batches into rows: selects them, checks them, and handles broken ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from ottla_protocol.records.batch import CODEC_MASK, CONTROL, LOG_APPEND_TIME, CorruptRecordError
from ottla_protocol.records.crc import crc32c

from .aborted import in_aborted
from .batches import AT, ATTRIBUTES, BASE, COUNT, CRC, EPOCH, LAST, SIZE
from .errors import CorruptBatch, CorruptData, DataLoss

if TYPE_CHECKING:
    import pyarrow as pa

    from .aborted import Chunk
    from .batches import Octets, Table
    from .engine import Engine
    from .errors import LossKind
    from .plain import PlainEngine
    from .ranges import OffsetRange, ReadSettings

log = logging.getLogger("ottla_pipeline")

_CHECKED_FROM: Final = 21
_GROUP_BYTES: Final = 16 * 1024 * 1024
_COMPRESSED_BYTES: Final = 2 * 1024 * 1024
"""Most bytes of batches that are decoded together; fewer if compressed, as their decoded size is unknown."""


class Decoder:
    """One range's decoder. ``set_aside`` gets batches that can't be decoded; without it they raise."""

    def __init__(
        self,
        range: OffsetRange,
        settings: ReadSettings,
        engine: Engine | PlainEngine,
        set_aside: Callable[[CorruptBatch], None] | None,
    ) -> None:
        self._range = range
        self._settings = settings
        self._engine = engine
        self._set_aside = set_aside
        self._rewritten = False
        self.position = range.start
        """The next offset to decode: everything before it has been yielded."""
        self._sure = True

    def done(self) -> None:
        """Move the position to the range's end: there are no more records."""
        self.position = max(self.position, self._range.end)

    def rows(self, chunk: Chunk, *, sure: bool = True) -> Iterator[pa.RecordBatch]:
        """The range's records in ``chunk``, from the position on, without aborted transactions.

        Unless ``sure``, batches that can't be decoded always raise, instead of being set aside. Raises CorruptData,
        DataLoss.
        """
        found, aborted, first = chunk
        self.position = max(self.position, first)
        self._sure = sure
        table = found.table
        range = self._range
        inside = (table[:, LAST] >= self.position) & (table[:, BASE] < range.end)
        self._check_epochs(table[inside])
        if aborted:
            try:
                inside &= ~in_aborted(found, aborted)
            except CorruptRecordError as error:
                raise self._corrupt(found.expected, str(error)) from error
        inside &= (table[:, COUNT] != 0) & (table[:, ATTRIBUTES] & CONTROL == 0)
        for group in _groups(table[inside], self._settings.batch_rows):
            yield from self._group(found.data, group)
        self.position = max(self.position, found.expected)
        if found.problem is not None and self.position < range.end:
            raise self._corrupt(self.position, found.problem)

    def lost(self, kind: LossKind, first: int, last: int) -> None:
        """Handle the loss of offsets ``first`` to ``last``: raise DataLoss or log it, by the settings."""
        loss = DataLoss.while_reading(kind, self._range.topic_partition, first, last)
        if self._settings.fail_on_data_loss:
            raise loss
        log.warning("%s", loss)

    def _check_epochs(self, table: Table) -> None:
        """Detect batches of a later leader than the one that reported the range's end: they replaced lost ones."""
        known = self._range.leader_epoch
        if known < 0 or self._rewritten:
            return
        later = table[table[:, EPOCH] > known]
        if len(later):
            self._rewritten = True
            self.lost("truncation", max(int(later[0, BASE]), self.position), self._range.end - 1)

    def _group(self, data: Octets, group: Table) -> Iterator[pa.RecordBatch]:
        """Decode batches together, or one by one if any is broken, and move the position past them."""
        behind = int(group[-1, LAST]) + 1
        group = self._intact(data, group)
        batches: list[pa.RecordBatch] = []
        try:
            if len(group):
                batches = self._engine.decode(data, group, self.position)
        except CorruptRecordError as error:
            if len(group) > 1:
                for row in np.split(group, len(group)):
                    yield from self._group(data, row)
            else:
                self._refuse(data, group[0], str(error))
        most = 2 * self._settings.batch_rows
        for batch in batches:
            if batch.num_rows <= most:
                yield batch
            else:
                for at in range(0, batch.num_rows, self._settings.batch_rows):
                    yield batch.slice(at, self._settings.batch_rows)
        self.position = max(self.position, behind)

    def _intact(self, data: Octets, group: Table) -> Table:
        """The batches whose checksum matches; refuses the others."""
        view = data.data
        places = zip(*(group[:, column].tolist() for column in (AT, SIZE, CRC)), strict=True)
        bad = [
            row
            for row, (at, size, crc) in enumerate(places)
            if crc32c(view[at + _CHECKED_FROM : at + size]) != crc
        ]
        for row in bad:
            self._refuse(data, group[row], "its checksum is wrong")
        return np.delete(group, bad, 0) if bad else group

    def _refuse(self, data: Octets, row: Table, reason: str) -> None:
        range = self._range
        first = max(int(row[BASE]), self.position)
        if self._set_aside is None or not self._sure:
            raise self._corrupt(first, reason)
        last = min(int(row[LAST]), range.end - 1)
        at, size = int(row[AT]), int(row[SIZE])
        self._set_aside(
            CorruptBatch(range.topic, range.partition, first, last, reason, data[at : at + size].tobytes())
        )

    def _corrupt(self, offset: int, reason: str) -> CorruptData:
        return CorruptData(self._range.topic, self._range.partition, offset, reason)


def _groups(table: Table, batch_rows: int) -> Iterator[Table]:
    """Batches to decode together: of one kind, with about ``batch_rows`` records, and not too large."""
    if not len(table):
        return
    kinds = table[:, ATTRIBUTES] & (LOG_APPEND_TIME | CODEC_MASK)
    compressed = kinds & CODEC_MASK != 0
    limits = np.where(compressed, _COMPRESSED_BYTES, _GROUP_BYTES)
    marks = np.empty((len(table), 3), np.int64)
    marks[:, 0] = np.where(compressed, 16, 0) | kinds & LOG_APPEND_TIME
    marks[:, 1] = (np.cumsum(table[:, COUNT]) - table[:, COUNT]) // batch_rows
    marks[:, 2] = (np.cumsum(table[:, SIZE]) - table[:, SIZE]) // limits
    borders = np.flatnonzero((marks[1:] != marks[:-1]).any(axis=1)) + 1
    yield from np.split(table, borders)
