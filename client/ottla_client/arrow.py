"""Decoded batches as Arrow tables. numpy and Arrow copy the fields; no Python object is made for a record.

The columns have the names and types of Spark's Kafka source:

  key            binary
  value          binary
  topic          string
  partition      int32
  offset         int64
  timestamp      timestamp[ms, UTC]
  timestampType  int32     0: set by the producer, 1: by the broker, -1: missing (TimestampType)
  headers        list<struct<key: string, value: binary>>, null without headers; only on request

``topic`` isn't dictionary-encoded: that costs 5 ns per record, but Spark and others accept no dictionaries.

This module needs the extra ``arrow``: pyarrow and numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import ConfigurationError
from .types import TimestampType

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc  # pyarrow would import it at the first take, which takes longer than a table
except ImportError as missing:
    raise ConfigurationError(
        f"Arrow tables need the package {missing.name}: pip install 'ottla[arrow]'"
    ) from missing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ottla_protocol.records.columns import RecordColumns
    from ottla_protocol.records.columns.parse import Spans
    from ottla_protocol.records.record import Headers

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_MAX_DATA = 1 << 30
"""The most bytes of data in one chunk of a table: Arrow's offsets have 31 bits."""


@cache
def schema(headers: bool = False) -> pa.Schema:
    """The schema of the tables from ``to_arrow``."""
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, ("headers", HEADERS)] if headers else fields)


class Part(NamedTuple):
    """Records ``start`` to ``stop`` (None: to the end) of decoded batches of one partition."""

    topic: str
    partition: int
    columns: RecordColumns
    start: int = 0
    stop: int | None = None

    @property
    def records(self) -> int:
        return len(range(*slice(self.start, self.stop).indices(self.columns.count)))


def to_arrow(parts: Iterable[Part], *, headers: bool = False) -> pa.Table:
    """The records of ``parts`` in order, as one table, perhaps with several chunks.

    In header names that aren't UTF-8, ``?`` replaces invalid bytes.
    """
    chunks: list[pa.RecordBatch] = []
    filled = (part for part in parts if part.records)
    for in_spans, group in groupby(filled, lambda part: part.columns.spans is not None):
        if in_spans:
            chunks += [_from_spans(portion, headers) for portion in _portions(group)]
        else:
            chunks.append(_from_lists(list(group), headers))
    return pa.Table.from_batches(chunks, schema(headers))


def _portions(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """``parts`` in lists with the data of one chunk each."""
    portion: list[Part] = []
    size = 0
    for part in parts:
        more = len(_spans(part).data)
        if portion and size + more > _MAX_DATA:
            yield portion
            portion = []
            size = 0
        portion.append(part)
        size += more
    if portion:
        yield portion


def _spans(part: Part) -> Spans:
    spans = part.columns.spans
    assert spans is not None
    return spans


def _from_spans(parts: list[Part], headers: bool) -> pa.RecordBatch:
    """One chunk from parts whose fields are positions in their batches' data."""
    every = [_spans(part) for part in parts]
    data = every[0].data if len(every) == 1 else b"".join(spans.data for spans in every)
    buffer = pa.py_buffer(data)
    bases = np.cumsum([0, *(len(spans.data) for spans in every[:-1])])
    cuts = [slice(part.start, part.stop) for part in parts]
    counts = [part.records for part in parts]

    def joined(columns: Iterable[NDArray[Any]]) -> NDArray[Any]:
        pieces = [column[cut] for column, cut in zip(columns, cuts, strict=True)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def fields(
        starts: Sequence[NDArray[np.int64]],
        sizes: Sequence[NDArray[np.int64]],
        nulls: Sequence[NDArray[np.bool_] | None],
    ) -> pa.Array:
        missing = None
        if any(each is not None for each in nulls):
            missing = joined(
                np.zeros(len(start), np.bool_) if each is None else each
                for each, start in zip(nulls, starts, strict=True)
            )
            if missing.all():
                return pa.nulls(len(missing), pa.binary())
        at = joined(start + base for start, base in zip(starts, bases.tolist(), strict=True))
        return _cut(buffer, at, joined(sizes), missing)

    columns = [
        fields([s.key_starts for s in every], [s.key_sizes for s in every], [s.key_nulls for s in every]),
        fields(
            [s.value_starts for s in every], [s.value_sizes for s in every], [s.value_nulls for s in every]
        ),
        *_places(parts, counts),
        _numbers(pa.int64(), joined(s.offsets for s in every)),
        _numbers(pa.timestamp("ms", "UTC"), joined(s.timestamps for s in every)),
        _timestamp_types(parts, counts),
    ]
    if headers:
        rows: dict[int, Headers] = {}
        first = 0
        for part, cut, spans, count in zip(parts, cuts, every, counts, strict=True):
            start, stop, _ = cut.indices(part.columns.count)
            rows |= {
                first + row - start: found for row, found in spans.headers.items() if start <= row < stop
            }
            first += count
        columns.append(_headers(rows, first))
    return pa.RecordBatch.from_arrays(columns, schema=schema(headers))


def _cut(
    buffer: pa.Buffer,
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    nulls: NDArray[np.bool_] | None,
) -> pa.Array:
    """The fields at ``starts`` in ``buffer``, in order, as an array of binary.

    The buffer is taken as an array of the fields and the bytes between them, of which Arrow takes every second element.
    """
    count = len(starts)
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = starts
    edges[1::2] = starts + sizes
    all_of_it = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), buffer])
    # pa.array would import pandas if that is installed, which takes 0.4 s.
    seconds = _numbers(pa.int64(), np.arange(0, 2 * count - 1, 2))
    taken = pc.take(all_of_it, seconds, boundscheck=False)
    if nulls is None:
        return taken
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [validity, *taken.buffers()[1:]])


def _numbers(type_: pa.DataType, numbers: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def _places(parts: list[Part], counts: list[int]) -> tuple[pa.Array, pa.Array]:
    """The columns ``topic`` and ``partition``."""
    names = [part.topic.encode() for part in parts]
    edges = np.zeros(sum(counts) + 1, np.int32)
    np.cumsum(np.repeat([len(name) for name in names], counts), out=edges[1:])
    text = b"".join(name * count for name, count in zip(names, counts, strict=True))
    topics = pa.Array.from_buffers(
        pa.string(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(text)]
    )
    partitions = np.repeat(np.array([part.partition for part in parts], np.int32), counts)
    return topics, _numbers(pa.int32(), partitions)


def _timestamp_types(parts: list[Part], counts: list[int]) -> pa.Array:
    kinds = np.array([TimestampType.of(part.columns.header) for part in parts], np.int32)
    return _numbers(pa.int32(), np.repeat(kinds, counts))


def _from_lists(parts: list[Part], headers: bool) -> pa.RecordBatch:
    """One chunk from parts that were decoded record by record."""
    counts = [part.records for part in parts]

    def column(lists: Iterable[list[Any]], type_: pa.DataType) -> pa.Array:
        pieces = (each[part.start : part.stop] for each, part in zip(lists, parts, strict=True))
        return pa.array(list(chain.from_iterable(pieces)), type_)

    columns = [
        column((part.columns.keys for part in parts), pa.binary()),
        column((part.columns.values for part in parts), pa.binary()),
        *_places(parts, counts),
        column((part.columns.offsets for part in parts), pa.int64()),
        column((part.columns.timestamps for part in parts), pa.int64()).cast(pa.timestamp("ms", "UTC")),
        _timestamp_types(parts, counts),
    ]
    if headers:
        every = chain.from_iterable(part.columns.headers[part.start : part.stop] for part in parts)
        columns.append(_headers({row: found for row, found in enumerate(every) if found}, sum(counts)))
    return pa.RecordBatch.from_arrays(columns, schema=schema(headers))


def _headers(rows: dict[int, Headers], count: int) -> pa.Array:
    """The column ``headers`` of ``count`` records; ``rows`` has the headers by index, in order."""
    sizes = np.zeros(count + 1, np.int32)
    sizes[1:][list(rows)] = [len(headers) for headers in rows.values()]
    names = [name.encode("utf-8", "replace") for headers in rows.values() for name, _ in headers]
    values = [value for headers in rows.values() for _, value in headers]
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.binary()).cast(pa.string()), pa.array(values, pa.binary())], ["key", "value"]
    )
    return pa.ListArray.from_arrays(
        pa.array(np.cumsum(sizes, dtype=np.int32)), pairs, mask=pa.array(sizes[1:] == 0)
    )
