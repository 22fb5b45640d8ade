"""Encodes columns as a message set of format 0 or 1, without Python code per record.

With numpy, records of one layout, as most batches have, are copied and checksummed as rows of a table. Any others are
put together by ``map`` and ``join``, at the speed of C, from the columns' lists. Both give the bytes of
``message_set.encode_messages``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, repeat
from operator import add, sub
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from ottla_protocol.records.batch import LOG_APPEND_TIME
from ottla_protocol.records.message_set import MIN_SIZE_FIELD

if TYPE_CHECKING:
    from ottla_protocol.records.columns.decode import RecordColumns
    from ottla_protocol.records.columns.parse import Spans

    RowEncoder = Callable[[Spans, int, int, int, int, int], "bytes | None"]

_FRONT = Struct(">qiI")
_HEADS = (Struct(">BBi"), Struct(">BBqi"))
_INT32 = Struct(">i")
_CRC_SIZE = 4
_NO_VALUE = _INT32.pack(-1)

ROWS = 1024
"""Records that are encoded in one go, in about a millisecond: no other Python thread runs meanwhile."""
_LEAST_FOR_ROWS = 64


def encode_message_columns(
    columns: RecordColumns,
    magic: int,
    *,
    first_offset: int | None = None,
    base_offset: int = 0,
    log_append_time: bool = False,
) -> Iterator[bytes]:
    """Yield the records from ``first_offset`` on as messages, some in each piece.

    Offsets are written less ``base_offset``, as in a wrapper of format 1. ``log_append_time``: set the attribute, for
    timestamps that are append times. Headers are left out, and so are timestamps in format 0.
    """
    offsets = columns.offsets
    start = 0 if first_offset is None else bisect_left(offsets, first_offset)
    attributes = LOG_APPEND_TIME if log_append_time and magic else 0
    spans = columns.spans if columns.count - start >= _LEAST_FOR_ROWS else None
    encode_rows = _row_encoder() if spans is not None else None
    for row in range(start, columns.count, ROWS):
        stop = min(row + ROWS, columns.count)
        encoded: bytes | None = None
        if encode_rows is not None and spans is not None:
            encoded = encode_rows(spans, row, stop, magic, attributes, base_offset)
        if encoded is None:
            encoded = _encode_lists(
                offsets[row:stop],
                columns.timestamps[row:stop],
                columns.keys[row:stop],
                columns.values[row:stop],
                magic,
                attributes,
                base_offset,
            )
        yield encoded


@cache
def _row_encoder() -> RowEncoder | None:
    try:
        from ottla_protocol.records.columns.message_rows import encode_rows
    except ImportError:
        return None
    return encode_rows


def _encode_lists(
    offsets: Sequence[int],
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    magic: int,
    attributes: int,
    base_offset: int,
) -> bytes:
    pack_head = _HEADS[magic].pack
    key_sizes: Sequence[int] | repeat[int]
    if None not in keys:
        key_sizes = list(map(len, keys))  # type: ignore[arg-type]
    elif keys.count(None) == len(keys):
        key_sizes, keys = repeat(-1), [b""] * len(keys)
    else:
        key_sizes = [-1 if key is None else len(key) for key in keys]
        keys = [b"" if key is None else key for key in keys]
    if None in values:
        value_sizes = [_NO_VALUE if value is None else _INT32.pack(len(value)) for value in values]
        values = [b"" if value is None else value for value in values]
    else:
        value_sizes = list(map(_INT32.pack, map(len, values)))  # type: ignore[arg-type]
    if magic:
        heads = map(pack_head, repeat(magic), repeat(attributes), timestamps, key_sizes)
    else:
        heads = map(pack_head, repeat(magic), repeat(attributes), key_sizes)
    covered = list(map(b"".join, zip(heads, keys, value_sizes, values)))  # type: ignore[arg-type] # noqa: B905
    sizes = map(add, map(len, covered), repeat(_CRC_SIZE))
    written = map(sub, offsets, repeat(base_offset)) if base_offset else offsets
    fronts = map(_FRONT.pack, written, sizes, map(crc32, covered))
    return b"".join(chain.from_iterable(zip(fronts, covered, strict=True)))


assert _FRONT.size + _HEADS[0].size + _INT32.size == MIN_SIZE_FIELD + 12
