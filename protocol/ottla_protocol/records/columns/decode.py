"""Decodes a batch into columns: in runs, with numpy where that is faster, or record by record."""

from __future__ import annotations

from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ottla_protocol.records.batch import BatchHeader, read_header
from ottla_protocol.records.record import (
    ANY_HEADERS,
    Headers,
    Record,
    decode_data,
    has_safe_timestamps,
    record_data,
)
from ottla_protocol.records.runs import Run, Runs, find_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from ottla_protocol.records.columns.parse import Piece, Spans

LEAST_FOR_NUMPY = 256
"""With fewer records, numpy's calls cost more than reading the records one by one."""
LEAST_FOR_COLUMNS = 32
"""The same limit for runs of records; for several batches, on average."""


class RecordColumns:
    """The records of one or more batches, with a list per field that is made on first use.

    ``count`` is the length of every list, ``header`` the first batch's header.
    """

    __slots__ = (
        "_headers",
        "_keys",
        "_offsets",
        "_runs",
        "_spans",
        "_timestamps",
        "_values",
        "count",
        "header",
    )

    def __init__(self, header: BatchHeader, source: Runs | Spans | list[Record]) -> None:
        self.header = header
        self._offsets: list[int] | None = None
        self._timestamps: list[int] | None = None
        self._keys: list[bytes | None] | None = None
        self._values: list[bytes | None] | None = None
        self._headers: list[Headers] | None = None
        self._runs: Runs | None = None
        self._spans: Spans | None = None
        if isinstance(source, list):
            self.count = len(source)
            columns: Any = map(list, zip(*source, strict=True)) if source else ([], [], [], [], [])
            self._offsets, self._timestamps, self._keys, self._values, self._headers = columns
        elif isinstance(source, Runs):
            self.count = sum(run.records for run in source.runs)
            self._runs = source
        else:
            self.count = len(source.offsets)
            self._spans = source

    @property
    def spans(self) -> Spans | None:
        """The positions of the records' fields in the data, for callers that need no Python objects.

        None if the records were read one by one, or numpy is missing.
        """
        if self._spans is None and self._runs is not None and _parser() is not None:
            from ottla_protocol.records.columns.parse import spans_of

            self._spans = spans_of(self._runs)
        return self._spans

    @property
    def offsets(self) -> list[int]:
        if self._offsets is None:
            if self._runs is not None:
                self._offsets = []
                for run in self._runs.runs:
                    self._offsets += range(run.offset, run.offset + run.records)
            else:
                self._offsets = self._places.offsets.tolist()
        return self._offsets

    @property
    def max_offset(self) -> int:
        """The largest offset; -1 without records."""
        if self._runs is not None:
            return max((run.offset + run.records - 1 for run in self._runs.runs), default=-1)
        if self._spans is not None:
            return int(self._spans.offsets.max()) if self.count else -1
        return max(self.offsets, default=-1)

    @property
    def timestamps(self) -> list[int]:
        """Timestamps in milliseconds."""
        if self._timestamps is None:
            if self._runs is not None:
                self._timestamps = []
                for run in self._runs.runs:
                    for timestamp, count in run.timestamps:
                        self._timestamps += repeat(timestamp, count)
            else:
                timestamps = self._places.timestamps
                first = int(timestamps[0])
                # Most batches have a single one, and a list that repeats one number is cheap.
                self._timestamps = (
                    [first] * self.count if (timestamps == first).all() else timestamps.tolist()
                )
        return self._timestamps

    @property
    def keys(self) -> list[bytes | None]:
        if self._keys is None:
            if self._runs is not None:
                self._keys = []
                for run in self._runs.runs:
                    self._keys += run.keys(self._runs.data)
            elif (spans := self._places).keyless:
                self._keys = [None] * self.count
            else:
                from ottla_protocol.records.columns.parse import cut

                self._keys = cut(spans.data, spans.key_starts, spans.key_sizes, spans.key_nulls)
        return self._keys

    @property
    def values(self) -> list[bytes | None]:
        if self._values is None:
            if self._runs is not None:
                self._values = []
                for run in self._runs.runs:
                    self._values += run.values(self._runs.data)
            else:
                from ottla_protocol.records.columns.parse import cut

                spans = self._places
                self._values = cut(spans.data, spans.value_starts, spans.value_sizes, spans.value_nulls)
        return self._values

    @property
    def headers(self) -> list[Headers]:
        if self._headers is None:
            self._headers = [()] * self.count
            if self._runs is None:
                for row, headers in self._places.headers.items():
                    self._headers[row] = headers
        return self._headers

    @property
    def _places(self) -> Spans:
        assert self._spans is not None
        return self._spans


@cache
def _parser() -> Callable[[bytes, Sequence[Piece], int], Spans | None] | None:
    """Import the parser that needs numpy, or return None. The first import takes a tenth of a second."""
    try:
        from ottla_protocol.records.columns.parse import parse
    except ImportError:
        return None
    return parse


def decode_columns(
    buf: Buffer,
    position: int = 0,
    header: BatchHeader | None = None,
    *,
    max_bytes: int | None = None,
) -> RecordColumns:
    """Decode the records of the batch at ``position`` into columns.

    ``header`` saves reading it again. ``max_bytes`` limits the decompressed size (256 MiB by default). This doesn't
    check the CRC; use ``crc_is_valid``.

    Raises CorruptRecordError for the same batches as ``decode_records``.
    """
    if header is None:
        header = read_header(buf, position)
    return decode_batches(buf, [(position, header)], max_bytes=max_bytes)


def decode_batches(
    buf: Buffer,
    batches: Sequence[tuple[int, BatchHeader]],
    *,
    max_bytes: int | None = None,
    max_headers: int = ANY_HEADERS,
) -> RecordColumns:
    """Decode several batches as if they were one, which is much faster for small batches.

    ``batches`` are positions in ``buf`` and their headers, as ``iter_headers`` yields them; at least one. The
    columns' ``header`` is the first one's, so combine only batches that agree in what you read from it. ``max_bytes``
    limits each batch, ``max_headers`` the headers of each record.

    Raises CorruptRecordError if any of them is corrupt; decode them one at a time to find which.
    """
    pieces = [
        (record_data(buf, position, header, max_bytes), header)
        for position, header in batches
        if header.record_count
    ]
    return decode_pieces(pieces, batches[0][1], max_headers=max_headers)


def decode_pieces(
    pieces: Sequence[tuple[bytes | memoryview, BatchHeader]],
    first: BatchHeader,
    *,
    max_headers: int = ANY_HEADERS,
) -> RecordColumns:
    """The same for data that ``record_data`` has read, each with its batch's header, none of them empty.

    ``first`` is what the columns have as their header. ``max_headers`` limits the headers of each record.
    """
    count = sum(header.record_count for _, header in pieces)
    if count >= LEAST_FOR_COLUMNS and all(has_safe_timestamps(header) for _, header in pieces):
        joined = b"".join([data for data, _ in pieces])
        sizes = [(len(data), header) for data, header in pieces]
        if count >= LEAST_FOR_COLUMNS * len(pieces) and (runs := _runs(joined, sizes)) is not None:
            return RecordColumns(first, runs)
        if count >= LEAST_FOR_NUMPY and (parse := _parser()) is not None:
            spans = parse(joined, sizes, max_headers)
            if spans is not None:
                return RecordColumns(first, spans)
    records: list[Record] = []
    for data, header in pieces:
        records += decode_data(bytes(data), header, max_headers)
    return RecordColumns(first, records)


def _runs(data: bytes, pieces: Sequence[Piece]) -> Runs | None:
    """Decode all batches in runs; None if one of them doesn't fit."""
    runs: list[Run] = []
    position = 0
    for size, header in pieces:
        found = find_runs(data, position, position + size, header)
        if found is None:
            return None
        runs += found
        position += size
    return Runs(data, runs)
