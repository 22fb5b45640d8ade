"""A batch of very many records, or of many bytes once decompressed, which is decoded a piece at a time.

A few kilobytes of a compressed batch can hold tens of millions of records: as objects they take gigabytes, and their
decoding as a whole takes seconds in which nothing else runs.
"""

from __future__ import annotations

from ottla_protocol.records.batch import BatchHeader, CorruptRecordError
from ottla_protocol.records.columns import RecordColumns, decode_pieces
from ottla_protocol.records.scan import CUT, FINE, REASONS, TRAILING, WrongRecordError, read_number, scan

MAX_HEADERS = 100_000
"""A record with more headers counts as corrupt. A few kilobytes of a compressed batch can claim millions, which would
take gigabytes as objects; a record of Kafka's default size can't have more than half a million empty ones."""
PIECE_RECORDS = 10_000
PIECE_BYTES = 4 * 1024 * 1024
"""The bounds of a piece, which has at least one record."""
MOST_AT_ONCE = 20_000
"""A batch of more records is decoded in pieces."""
_BEFORE_KEY = 5 + 1 + 10 + 5
"""The most bytes of a record's length, attributes, timestamp and offset."""


class LargeBatch:
    """The records of the batch at byte ``at`` of a chunk; the next piece begins at ``offset`` or behind it."""

    __slots__ = ("_before", "_data", "_left", "_piece_bytes", "_position", "at", "header", "offset")

    def __init__(
        self, at: int, header: BatchHeader, data: bytes | memoryview, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self.at = at
        self.header = header
        self.offset = header.base_offset
        self._data = data
        self._position = 0
        self._left = header.record_count
        self._piece_bytes = piece_bytes
        self._before = (self.offset, 0, self._left)
        """The offset, position and records left before the last piece."""

    @property
    def done(self) -> bool:
        return not self._left

    def go_to(self, offset: int) -> bool:
        """Have the next piece begin at ``offset`` or before it; False if all that begin there are past."""
        if offset < self.offset:
            if offset < self._before[0]:
                return False
            self.offset, self._position, self._left = self._before
        return not self.done

    def next(self, start: int = 0) -> RecordColumns:
        """The next piece. Raises CorruptRecordError.

        Pieces that end before the offset ``start`` are passed over without decoding them.
        """
        end, count = self._piece()
        while self.offset < start and count < self._left:
            following = self._offset_at(end)
            if following is None or following > start:
                break
            self._position, self._left = end, self._left - count
            self.offset = max(self.offset, following)
            end, count = self._piece()
        position, left = self._position, self._left
        piece = self.header._replace(record_count=count)
        columns = decode_pieces([(self._data[position:end], piece)], self.header, max_headers=MAX_HEADERS)
        if columns.offsets[0] < self.offset:
            raise CorruptRecordError(f"record {columns.offsets[0]} comes behind record {self.offset - 1}")
        check_last_offset(columns, self.header)
        self._before = (self.offset, position, left)
        self._position, self._left = end, left - count
        self.offset = self.header.last_offset + 1 if self.done else columns.offsets[-1] + 1
        return columns

    def _offset_at(self, position: int) -> int | None:
        """The offset of the record that begins there; None if it can't be read."""
        data = bytes(self._data[position : position + _BEFORE_KEY])
        try:
            _, at = read_number(data, 0, len(data))
            # A byte of attributes follows the length.
            _, at = read_number(data, at + 1, len(data), 10)
            delta, _ = read_number(data, at, len(data))
        except WrongRecordError:
            return None  # what is wrong is raised when its piece is decoded
        return self.header.base_offset + delta

    def _piece(self) -> tuple[int, int]:
        """The position behind the next piece, and its records. Raises CorruptRecordError."""
        data, position = self._data, self._position
        count = min(self._left, PIECE_RECORDS)
        size = self._piece_bytes
        while True:
            end = min(position + size, len(data))
            found = scan(data, position, end, count, self.header.base_timestamp)
            if found.reason not in (FINE, CUT, TRAILING) and not found.record:
                raise CorruptRecordError(f"a record can't be read: {REASONS[found.reason]}")
            if found.record:
                behind = end if found.reason == FINE else found.position
                break
            if end == len(data):
                raise CorruptRecordError(f"{self._left} records of the batch are missing")
            size *= 2
        if found.record == self._left and behind != len(data):
            raise CorruptRecordError(f"{len(data) - behind} bytes are left behind the batch's records")
        return behind, found.record


def check_last_offset(columns: RecordColumns, last: BatchHeader) -> None:
    """Raises CorruptRecordError for a record behind the last of its batches, where no position leads to it."""
    if columns.max_offset > last.last_offset:
        raise CorruptRecordError(
            f"record {columns.max_offset} comes behind the last offset {last.last_offset}"
        )
