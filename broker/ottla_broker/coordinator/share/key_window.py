"""The keys of some offsets of a batch, read without the batch's other records.

The body is decompressed part by part. The records before the wanted ones are skipped by the scan of
:mod:`ottla_protocol.records.scan`, which makes no objects of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla_protocol.records.batch import MAGIC, BatchHeader, CorruptRecordError
from ottla_protocol.records.formats import Octets, decode_any
from ottla_protocol.records.scan import CUT, FINE, REASONS, TRAILING, WrongRecordError, read_number, scan
from ottla_protocol.records.walk import body_parts

if TYPE_CHECKING:
    from typing_extensions import Buffer


def read_window(
    data: Octets, position: int, header: BatchHeader, since: int, until: int
) -> tuple[list[int], list[int]]:
    """The offsets from ``since`` to before ``until`` of the batch at ``position``, and the hashes of their keys.

    Any thread may call this. Raises CorruptRecordError.
    """
    if header.is_control:
        return [], []
    offsets: list[int] = []
    keys: list[int] = []
    if header.magic != MAGIC:
        for record in decode_any(data, position, header):
            if since <= record.offset < until:
                offsets.append(record.offset)
                keys.append(hash(record.key))
        return offsets, keys
    base, count = header.base_offset, header.record_count
    # Compaction leaves gaps; then the offsets before the wanted ones are read too.
    has_gaps = count != header.last_offset - base + 1
    passed = 0 if has_gaps else min(max(since - base, 0), count)
    body = _Body(body_parts(memoryview(data)[position : position + header.size], header))
    try:
        body.skip(passed)
        for _ in range(count - passed):
            delta, key = body.next_key()
            offset = base + delta
            if offset >= until:
                break
            if offset >= since:
                offsets.append(offset)
                keys.append(key)
    except WrongRecordError as wrong:
        raise CorruptRecordError(
            f"a record of the batch at offset {base} can't be read: {REASONS[wrong.reason]}"
        ) from None
    return offsets, keys


class _Body:
    """The records of a batch, of which some parts are in memory."""

    __slots__ = ("_at", "_data", "_parts")

    def __init__(self, parts: Iterator[Buffer]) -> None:
        self._parts = parts
        self._data = b""
        self._at = 0

    def skip(self, count: int) -> None:
        """Pass so many records. Raises WrongRecordError, CorruptRecordError."""
        while count:
            found = scan(self._data, self._at, len(self._data), count, 0)
            self._at = found.position
            if found.reason in (FINE, TRAILING):
                return
            if found.reason != CUT:
                raise WrongRecordError(found.reason)
            count -= found.record
            self._more()

    def next_key(self) -> tuple[int, int]:
        """The next record's offset delta, and the hash of its key. Raises WrongRecordError, CorruptRecordError."""
        while True:
            data = self._data
            try:
                length, at = read_number(data, self._at, len(data))
            except WrongRecordError as wrong:
                if wrong.reason != CUT:
                    raise
                self._more()
                continue
            end = at + length
            if end <= len(data):
                break
            self._more()
        _, at = read_number(data, at + 1, end, 10)
        delta, at = read_number(data, at, end)
        size, at = read_number(data, at, end)
        self._at = end
        return delta, hash(None if size < 0 else data[at : at + size])

    def _more(self) -> None:
        """Add a part, or as many as it takes to have twice as much. Raises WrongRecordError: there is none."""
        held: list[Buffer] = [self._data[self._at :]]
        size = len(self._data) - self._at
        enough = 2 * size
        while size <= enough:
            part = next(self._parts, None)
            if part is None:
                break
            held.append(part)
            size += memoryview(part).nbytes
        if len(held) == 1:
            raise WrongRecordError(CUT)
        self._data, self._at = b"".join(held), 0
