"""Finds the batches of aborted transactions, which readers of committed records skip.

Over the wire a broker lists the aborted transactions by producer and first offset; each ends with its marker in the
log. The index beside a segment file also has the marker's offset. Source: Kafka's ``CompletedFetch``,
``TransactionIndex`` (KIP-98).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ottla_protocol.records.batch import CONTROL, TRANSACTIONAL, CorruptRecordError, crc_is_valid, read_header
from ottla_protocol.records.control import ABORT, MARKER_BYTES, control_type
from ottla_protocol.records.record import decode_records

from .batches import AT, ATTRIBUTES, BASE, LAST, PRODUCER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .batches import Batches


class Aborted(NamedTuple):
    """An aborted transaction: its producer, its first offset, and its marker's offset, None if unknown."""

    producer: int
    first: int
    last: int | None = None


class Chunk(NamedTuple):
    """Consecutive batches, the aborted transactions that may be among them, and the first offset to read."""

    found: Batches
    aborted: Sequence[Aborted] = ()
    first: int = 0


def in_aborted(found: Batches, aborted: Sequence[Aborted]) -> NDArray[np.bool_]:
    """For each batch, whether it is part of one of these transactions.

    A transaction without a last offset ends with its marker; ``found`` then has all batches from the fetch's first
    offset on. Raises CorruptRecordError for a marker that can't be read.
    """
    table = found.table
    producers = table[:, PRODUCER]
    kinds = table[:, ATTRIBUTES]
    part = np.zeros(len(table), np.bool_)
    open_ended = [each for each in aborted if each.last is None]
    for producer, first, last in aborted:
        if last is not None:
            part |= (producers == producer) & (table[:, BASE] >= first) & (table[:, LAST] <= last)
    if open_ended:
        part |= _by_markers(found, open_ended)
    part &= (kinds & (TRANSACTIONAL | CONTROL)) == TRANSACTIONAL
    return part


def _by_markers(found: Batches, aborted: Sequence[Aborted]) -> NDArray[np.bool_]:
    """As ``in_aborted``, batch by batch, including control batches."""
    table = found.table
    part = np.zeros(len(table), np.bool_)
    coming = sorted(((each.first, each.producer) for each in aborted), reverse=True)
    dropping: set[int] = set()
    rows = np.flatnonzero(table[:, PRODUCER] >= 0)
    for row, last, producer, attributes in zip(
        rows.tolist(),
        *(table[rows, column].tolist() for column in (LAST, PRODUCER, ATTRIBUTES)),
        strict=True,
    ):
        while coming and coming[-1][0] <= last:
            dropping.add(coming.pop()[1])
        if producer in dropping:
            part[row] = True
            if attributes & CONTROL and _aborts(found, int(table[row, AT])):
                dropping.remove(producer)
    return part


def _aborts(found: Batches, at: int) -> bool:
    """Whether a control batch is an abort marker."""
    view = found.data.data
    header = read_header(view, at)
    if not crc_is_valid(view, at, header):
        raise CorruptRecordError("the checksum of a transaction's marker is wrong")
    records = decode_records(view, at, header, max_bytes=MARKER_BYTES)
    return bool(records) and control_type(records[0].key) == ABORT
