"""Finds all fields of a batch's records with numpy, one field of all records at a time.

It handles only regular data. Unusual or corrupt batches are left to ``ottla_protocol.records.record``, which also
raises the errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ottla_protocol.records.batch import LOG_APPEND_TIME, BatchHeader, CorruptRecordError
from ottla_protocol.records.record import MIN_RECORD_SIZE, Headers, decode_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ottla_protocol.records.runs import Runs

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Octets = NDArray[np.uint8]
    Piece = tuple[int, BatchHeader]


class Spans(NamedTuple):
    """The positions of a batch's records in ``data``, with one array element per record.

    ``key_nulls`` and ``value_nulls`` mark missing fields (None: none is missing), whose sizes are 0. ``keyless`` is
    True if all keys are missing. ``timestamps`` are milliseconds. ``headers`` has the rows with headers.
    """

    data: bytes
    offsets: Integers
    timestamps: Integers
    key_starts: Integers
    key_sizes: Integers
    key_nulls: Flags | None
    keyless: bool
    value_starts: Integers
    value_sizes: Integers
    value_nulls: Flags | None
    headers: dict[int, Headers]


class _Unusual(Exception):
    """The data is unusual; use the careful parser."""


def parse(data: bytes, pieces: Sequence[Piece], max_headers: int) -> Spans | None:
    """Find the records that fill ``data``, or return None if they must be read one by one.

    ``pieces`` are the batches in ``data``: the size of their records, and their header. None of them is empty, and
    all base timestamps pass ``has_safe_timestamps``. ``max_headers`` limits each record's headers.
    """
    try:
        return _parse(data, pieces, max_headers)
    except (_Unusual, IndexError, TypeError, CorruptRecordError):
        return None


def spans_of(source: Runs) -> Spans:
    """The same for records found in runs."""
    data, runs = source
    counts = [run.records for run in runs]
    stamps = [stamp for run in runs for stamp in run.timestamps]
    key_sizes = np.repeat([run.key_size for run in runs], counts)
    value_sizes = np.repeat([run.value_size for run in runs], counts)
    key_nulls, value_nulls = key_sizes < 0, value_sizes < 0
    return Spans(
        data,
        np.concatenate([np.arange(run.offset, run.offset + run.records) for run in runs]),
        np.repeat([timestamp for timestamp, _ in stamps], [count for _, count in stamps]),
        np.concatenate([_arange(run.places(run.key_at)) for run in runs]),
        np.maximum(key_sizes, 0),
        key_nulls if key_nulls.any() else None,
        bool(key_nulls.all()),
        np.concatenate([_arange(run.places(run.value_at)) for run in runs]),
        np.maximum(value_sizes, 0),
        value_nulls if value_nulls.any() else None,
        {},
    )


def _arange(numbers: range) -> Integers:
    return np.arange(numbers.start, numbers.stop, numbers.step)


def _parse(data: bytes, pieces: Sequence[Piece], max_headers: int) -> Spans:
    count = sum(header.record_count for _, header in pieces)
    octets = np.frombuffer(data, np.uint8)
    starts = _walk(data, octets, count)
    ends = np.empty(count, np.int64)
    ends[:-1] = starts[1:]
    ends[-1] = len(data)
    if len(pieces) > 1:
        # Every batch's records must end with the batch.
        firsts = np.cumsum([header.record_count for _, header in pieces])[:-1]
        if not np.array_equal(starts[firsts], np.cumsum([size for size, _ in pieces])[:-1]):
            raise _Unusual
    # A byte of attributes follows the record's length, which was read already.
    _, at = _numbers(octets, starts, 5)
    stamps, at = _numbers(octets, at + 1, 9)
    deltas, at = _numbers(octets, at, 5)
    if _any_odd(deltas):
        raise _Unusual  # a delta below zero
    key_sizes, key_nulls, at = _field(octets, at)
    key_starts = at
    keyless = key_nulls is not None and bool(key_nulls.all())
    value_sizes, value_nulls, at = _field(octets, at if keyless else at + key_sizes)
    value_starts = at
    at = at + value_sizes
    headers: dict[int, Headers] = {}
    with_headers = octets[at]
    if with_headers.any():
        rows = np.flatnonzero(with_headers)
        for row, start, end in zip(rows.tolist(), at[rows].tolist(), ends[rows].tolist(), strict=True):
            headers[row], behind = decode_headers(data, start, end, max_headers)
            if behind != end:
                raise _Unusual
        at[rows] = ends[rows] - 1
    if not np.array_equal(at + 1, ends):
        raise _Unusual
    offsets, timestamps = _rebase(pieces, deltas >> 1, _signed(stamps))
    return Spans(
        data,
        offsets,
        timestamps,
        key_starts,
        key_sizes,
        key_nulls,
        keyless,
        value_starts,
        value_sizes,
        value_nulls,
        headers,
    )


def _rebase(pieces: Sequence[Piece], offsets: Integers, timestamps: Integers) -> tuple[Integers, Integers]:
    """Compute offsets and timestamps from the records' deltas and their batches' headers."""
    base_offset: Integers | int
    base_timestamp: Integers | int
    headers = [header for _, header in pieces]
    append_times = [header.attributes & LOG_APPEND_TIME != 0 for header in headers]
    bases = [
        header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp
        for header in headers
    ]
    if len(headers) == 1:
        base_offset = headers[0].base_offset
        base_timestamp = bases[0]
        if append_times[0]:
            timestamps = np.zeros_like(timestamps)
    else:
        counts = [header.record_count for header in headers]
        base_offset = np.repeat([header.base_offset for header in headers], counts)
        base_timestamp = np.repeat(bases, counts)
        if any(append_times):
            timestamps = timestamps.copy()
            timestamps[np.repeat(append_times, counts)] = 0
    return offsets + base_offset, timestamps + base_timestamp


# The size of a record with its length, by the first byte of a one-byte length, and by both bytes of a two-byte length.
# None for an invalid byte, which raises TypeError when added.
_STEP: list[Any] = [None if byte & 1 else 1 + (byte >> 1) for byte in range(128)]
_STEP_LOW: list[Any] = [None if byte & 1 else 2 + ((byte & 127) >> 1) for byte in range(256)]
_STEP_HIGH: list[Any] = [byte << 6 if byte < 128 else None for byte in range(256)]
# Step through this many records before trying whether they have one size.
_BLOCK = 16
_ALIKE = 8
# The first run that is tried; each complete run makes the next one four times as long.
_RUN = 128


def _walk(data: bytes, octets: Octets, count: int) -> Integers:
    """Find where each record begins. Together the records fill ``data`` exactly.

    A record's position follows from the previous one's length, so this is a loop. For records of equal length it is
    faster: if the bytes of the length repeat at every multiple of the record's size, a record begins at each.
    """
    size = len(data)
    found: list[Integers] = []
    stepped: list[int] = []
    append = stepped.append
    position = 0
    step = 0
    left = count
    step_of = _STEP
    step_low = _STEP_LOW
    step_high = _STEP_HIGH
    while left:
        for _ in range(min(left, _BLOCK)):
            append(position)
            first = data[position]
            if first < 128:
                step = step_of[first]
            else:
                second = data[position + 1]
                step = step_low[first] + step_high[second] if second < 128 else _long_step(octets, position)
            position += step
        left -= min(left, _BLOCK)
        if left < _BLOCK or position - stepped[-_ALIKE] != _ALIKE * step:
            continue
        repeats = _repeats(data, position - step, step, min(left, (size - position) // step))
        run = range(position, position + repeats * step, step)
        if repeats <= _RUN:
            stepped += run
        else:
            found += (np.array(stepped, np.int64), np.arange(run.start, run.stop, step))
            stepped.clear()
        position = run.stop
        left -= repeats
    if position != size:
        raise _Unusual
    if stepped:
        found.append(np.array(stepped, np.int64))
    return found[0] if len(found) == 1 else np.concatenate(found)


def _long_step(octets: Octets, position: int) -> int:
    """Return the size of a record whose length takes more than two bytes."""
    numbers, behind = _numbers(octets, np.array([position]), 5)
    if numbers[0] & 1:
        raise _Unusual
    return int(behind[0] - position + (numbers[0] >> 1))


def _repeats(data: bytes, like: int, step: int, most: int) -> int:
    """Count the records, at most ``most``, that follow the one at ``like`` and begin with the same length.

    It slices the bytes of the lengths out of ``data`` with a step, which is the fastest way.
    """
    if step < MIN_RECORD_SIZE:
        return 0
    position = like + step
    repeats = 0
    limit = _RUN
    while repeats < most:
        looked_at = alike = min(limit, most - repeats)
        behind = position + looked_at * step
        at = like
        while True:
            byte = data[at : at + 1]
            column = data[position + at - like : behind : step]
            alike = min(alike, looked_at - len(column.lstrip(byte)))
            if byte < b"\x80":
                break
            at += 1
        repeats += alike
        if alike < looked_at:
            break
        position = behind
        limit *= 4
    return repeats


def _numbers(octets: Octets, at: Integers, most: int) -> tuple[Integers, Integers]:
    """Read the varints at ``at``, still zigzag, and return them with the positions after them.

    Raises _Unusual for one of more than ``most`` bytes, or more than 32 bits in five.
    """
    first = octets[at]
    if first.max() < 128:
        return first.astype(np.int64), at + 1
    second = octets[at + 1]
    longer = first >> 7
    if longer.all():
        numbers = (first & 127) + (second.astype(np.int64) << 7)
        behind = at + 2
    else:
        numbers = (first & 127) + ((second * longer).astype(np.int64) << 7)
        behind = at + longer
        behind += 1
    if second.max() > 127:
        rows = np.flatnonzero((second & first) > 127)
        numbers[rows] -= 1 << 14
        shift = 14
        while rows.size:
            if shift == 7 * most:
                raise _Unusual
            byte = octets[behind[rows]]
            numbers[rows] += (byte & 127).astype(np.int64) << shift
            behind[rows] += 1
            rows = rows[byte > 127]
            shift += 7
        if most == 5 and numbers.max() >> 32:
            raise _Unusual
    return numbers, behind


def _field(octets: Octets, at: Integers) -> tuple[Integers, Flags | None, Integers]:
    """Return the sizes of the fields with lengths at ``at``, which ones are missing, and their starts."""
    numbers, at = _numbers(octets, at, 5)
    nulls: Flags | None = None
    if _any_odd(numbers):
        nulls = (numbers & 1).astype(np.bool_)
        if numbers[nulls].max() > 1:
            raise _Unusual  # a length below -1
    return numbers >> 1, nulls, at


# Memory above this comes from the system, and allocating it twice is expensive.
_GATHER_LIMIT = 512


def cut(data: bytes, starts: Integers, sizes: Integers, nulls: Flags | None) -> list[bytes | None]:
    """Cut out the fields at ``starts``; None for those in ``nulls``."""
    fields: list[bytes | None]
    size = int(sizes[0])
    if 0 < size <= _GATHER_LIMIT and (sizes == size).all():
        # With one size, numpy makes the bytes objects itself.
        everywhere: NDArray[np.void] = np.ndarray((len(data) - size + 1,), f"V{size}", data, 0, (1,))
        fields = everywhere[starts].tolist()
    else:
        fields = [
            data[start:end] for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        ]
    if nulls is not None:
        for row in np.flatnonzero(nulls).tolist():
            fields[row] = None
    return fields


def _any_odd(numbers: Integers) -> bool:
    return bool(np.bitwise_or.reduce(numbers) & 1)


def _signed(numbers: Integers) -> Integers:
    """Decode zigzag numbers."""
    if not numbers.any():
        return numbers
    return (numbers >> 1) ^ -(numbers & 1)
