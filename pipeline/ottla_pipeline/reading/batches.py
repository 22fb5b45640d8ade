"""Lists the batches in a run of bytes: where each begins, its offsets, and what decoding needs to know.

The table has one row per batch and these columns, all int64. The compiled record engine makes it or, where it is
missing, this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from ottla_protocol.records.batch import HEADER_SIZE, MAGIC, CorruptRecordError, read_header
from ottla_protocol.records.scan import module

from .old_formats import is_message, rewrite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Octets: TypeAlias = NDArray[np.uint8]
    Table: TypeAlias = NDArray[np.int64]

AT: Final = 0
SIZE: Final = 1
BASE: Final = 2
LAST: Final = 3
EPOCH: Final = 4
ATTRIBUTES: Final = 5
COUNT: Final = 6
STAMP: Final = 7
MAX_STAMP: Final = 8
PRODUCER: Final = 9
CRC: Final = 10
WIDTH: Final = 11

GOOD: Final = 0
BROKEN: Final = 1
DISORDER: Final = 2

_ROWS: Final = 4096
_MOST_OFFSET: Final = 2**63 - 1


class Batches(NamedTuple):
    """Whole batches in ``data``, up to the one that reaches the range's end.

    ``size``: the bytes that they take; ``expected``: the least offset that may follow; ``problem``: why the bytes that
    follow can't be a batch, None if the bytes end.
    """

    data: Octets
    table: Table
    size: int
    expected: int
    problem: str | None


def find_batches(data: Octets, expected: int, end: int, *, room: int = _ROWS) -> Batches:
    """The batches at the start of ``data``. ``expected`` is the least valid offset of the first one.

    Messages of the formats 0 and 1 at the start become batches in a copy; ``size`` counts the messages' bytes. Where
    they follow batches, they are left for the next call, without a problem.
    """
    if is_message(data, 0):
        old = rewrite(data, end)
        made = find_batches(as_octets(old.batches), expected, end, room=room)
        return made if made.problem is not None else made._replace(size=old.size, problem=old.problem)
    walk = _walk if module is None else module.list_batches
    tables: list[Table] = []
    at = 0
    while True:
        table = np.empty((room, WIDTH), np.int64)
        rows, at, expected, status = walk(data, at, len(data), expected, end, table)
        tables.append(table[:rows])
        if rows < room:
            break
    found = tables[0] if len(tables) == 1 else np.concatenate(tables)
    problem = None
    if status != GOOD and not (len(found) and is_message(data, at)):
        problem = _problem(data, at, expected)
    if problem is None and len(found) and found[-1, BASE] >= end and _goes_back(data, at, found[-1, BASE]):
        # No checksum covers a batch's offset. If it jumps over the range's end and the next batch doesn't, it is wrong.
        at = int(found[-1, AT])
        found = found[:-1]
        expected = int(found[-1, LAST]) + 1 if len(found) else -1
        problem = "its offset is beyond that of the next batch"
    return Batches(data, found, at, expected, problem)


def _goes_back(data: Octets, at: int, offset: int) -> bool:
    """Whether there seems to be a batch at ``at`` that begins before ``offset``."""
    head = data[at : at + HEADER_SIZE].tobytes()
    return len(head) == HEADER_SIZE and head[16] == MAGIC and int.from_bytes(head[:8], "big") < offset


def _problem(data: Octets, at: int, expected: int) -> str:
    """The reason why the batch at ``at`` is damaged."""
    try:
        header = read_header(data.data, at)
    except CorruptRecordError as error:
        return str(error)
    offsets = f"{header.base_offset} to {header.last_offset}"
    return f"a record batch has the offsets {offsets} where none below {expected} can be"


def _walk(
    data: Octets, at: int, stop: int, expected: int, end: int, table: Table
) -> tuple[int, int, int, int]:
    """``list_batches`` in Python."""
    row = 0
    view = data.data
    while row < len(table) and expected < end and stop - at >= HEADER_SIZE:
        try:
            header = read_header(view, at)
        except CorruptRecordError:
            return row, at, expected, BROKEN
        if header.size > stop - at:
            break
        base, last = header.base_offset, header.last_offset
        if base < expected or last < base or last >= _MOST_OFFSET:
            return row, at, expected, DISORDER
        table[row] = (
            at,
            header.size,
            base,
            last,
            header.partition_leader_epoch,
            header.attributes & 0xFFFF,
            header.record_count,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.crc,
        )
        row += 1
        at += header.size
        expected = last + 1
    return row, at, expected, GOOD


def as_octets(buffer: object) -> Octets:
    """A buffer's bytes as an array, without a copy."""
    return np.frombuffer(buffer, np.uint8)  # type: ignore[call-overload, no-any-return]
