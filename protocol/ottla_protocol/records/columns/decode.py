"""A batch's records as columns: with numpy where it is installed and pays, else as ``record`` reads them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ottla_protocol.records.batch import BatchHeader, read_header
from ottla_protocol.records.record import (
    Headers,
    Record,
    decode_data,
    has_safe_timestamps,
    record_data,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from ottla_protocol.records.columns.parse import Flags, Integers, Spans

LEAST_FOR_NUMPY = 64
"""Below so many records numpy's calls cost more than reading the records one by one."""


class RecordColumns:
    """The records of one batch, a list for each of their fields, made when it is first asked for.

    ``count`` is the length of every list. ``header`` is the batch's. ``spans`` are the same records as places
    in the batch's data, for those who make no Python objects of them; None where they were read one by one.
    """

    __slots__ = ("_headers", "_keys", "_offsets", "_timestamps", "_values", "count", "header", "spans")

    def __init__(self, header: BatchHeader, source: Spans | list[Record]) -> None:
        self.header = header
        self._offsets: list[int] | None = None
        self._timestamps: list[int] | None = None
        self._keys: list[bytes | None] | None = None
        self._values: list[bytes | None] | None = None
        self._headers: list[Headers] | None = None
        self.spans: Spans | None = None
        if isinstance(source, list):
            self.count = len(source)
            columns: list[list[object]] = [list(column) for column in zip(*source, strict=True)] or [[]] * 5
            self._offsets, self._timestamps, self._keys, self._values, self._headers = columns  # type: ignore[assignment]
        else:
            self.count = header.record_count
            self.spans = source

    @property
    def offsets(self) -> list[int]:
        if self._offsets is None:
            self._offsets = self._spans.offsets.tolist()
        return self._offsets

    @property
    def timestamps(self) -> list[int]:
        """In milliseconds."""
        if self._timestamps is None:
            self._timestamps = self._spans.timestamps.tolist()
        return self._timestamps

    @property
    def keys(self) -> list[bytes | None]:
        if self._keys is None:
            spans = self._spans
            if spans.keyless:
                self._keys = [None] * self.count
            else:
                self._keys = _cut(spans.data, spans.key_starts, spans.key_sizes, spans.key_nulls)
        return self._keys

    @property
    def values(self) -> list[bytes | None]:
        if self._values is None:
            spans = self._spans
            self._values = _cut(spans.data, spans.value_starts, spans.value_sizes, spans.value_nulls)
        return self._values

    @property
    def headers(self) -> list[Headers]:
        if self._headers is None:
            self._headers = [()] * self.count
            for row, headers in self._spans.headers.items():
                self._headers[row] = headers
        return self._headers

    @property
    def _spans(self) -> Spans:
        assert self.spans is not None
        return self.spans


def _cut(data: bytes, starts: Integers, sizes: Integers, nulls: Flags | None) -> list[bytes | None]:
    fields: list[bytes | None] = [
        data[start:end] for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    ]
    if nulls is not None:
        for row in nulls.nonzero()[0].tolist():
            fields[row] = None
    return fields


@cache
def _parser() -> Callable[[bytes, BatchHeader], Spans | None] | None:
    """The parser that needs numpy, None without it; importing it takes a tenth of a second, once."""
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
    """The records of the batch at ``position``, in columns.

    ``header`` saves reading it again. ``max_bytes`` bounds what a compressed batch may expand to (256 MiB if
    not given). The CRC is not looked at: ``crc_is_valid`` does that.

    Raises CorruptRecordError for exactly the batches that ``decode_records`` refuses.
    """
    if header is None:
        header = read_header(buf, position)
    data = record_data(buf, position, header, max_bytes)
    spans: Spans | None = None
    if header.record_count >= LEAST_FOR_NUMPY and has_safe_timestamps(header) and (parse := _parser()):
        spans = parse(data, header)
    return RecordColumns(header, decode_data(data, header) if spans is None else spans)
