"""Checks every record of a batch without making objects of them, as Kafka's LogValidator does for a leader.

The compiled module ``_records`` does it at about 10 ns a record. Where it is missing, this module does the same:
records of one layout in runs, the others one by one. Layout and limits of a record: see ``record``. A body that comes
in pieces: see ``walk``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla_protocol.compiled import load_engine
from ottla_protocol.records.batch import BatchHeader
from ottla_protocol.records.runs import find_runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

_RECORDS_A_TURN: Final = 256
MOST_REFUSED: Final = 1000
"""So many refused records are listed; all are counted."""
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

FINE, CUT, NUMBER, LENGTH, FIELD, HEADERS, HEADER, ENDS, TRAILING, TIMESTAMP, FOUND = range(11)
"""What is wrong with a batch's body, or why a walk has ended; the same numbers as in ``_records.c``."""
REASONS: Final = {
    CUT: "the batch ends within it",
    NUMBER: "it holds a number of more bits than its field has",
    LENGTH: "its length is negative",
    FIELD: "its key or value claims a size that doesn't fit",
    HEADERS: "it claims more headers than fit",
    HEADER: "the name or value of a header claims a size that doesn't fit",
    ENDS: "its fields don't fill its length",
    TRAILING: "bytes follow the last record",
    TIMESTAMP: "its timestamp has more than 64 bits",
}
NO_KEY: Final = 1
OUT_OF_RANGE: Final = 2
"""Why a single record is refused."""


class Scan(NamedTuple):
    """The findings of a scan.

    ``reason``: FINE, or why the body can't be read; then ``record`` and ``position`` say where and the other fields
    mean nothing. ``max_timestamp`` is the largest, at least -1. ``renumber``: the offset deltas aren't 0, 1, 2 ….
    ``without_key`` and ``out_of_range`` count records, and ``refused`` lists the first of them: index in the batch,
    timestamp, NO_KEY or OUT_OF_RANGE.
    """

    reason: int
    record: int
    position: int
    max_timestamp: int
    renumber: int
    without_key: int
    out_of_range: int
    refused: list[tuple[int, int, int]]


module = load_engine()
_compiled: Callable[..., Any] | None = None if module is None else module.scan
IS_COMPILED: Final = _compiled is not None


def scan(
    data: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    *,
    first: int = 0,
    earliest: int = INT64_MIN,
    latest: int = INT64_MAX,
    keys: bool = False,
    pause: Callable[[], object] | None = None,
) -> Scan:
    """Check the ``count`` records in ``data[start:end]``, which are the batch's records from number ``first`` on.

    Timestamps other than -1 outside ``earliest`` to ``latest`` are refused; with ``keys``, records without a key too,
    whose timestamps don't matter then. ``pause`` is called after every few hundred records that Python looks at.
    """
    if _compiled is not None:
        return Scan(*_compiled(data, start, end, first, count, base_timestamp, earliest, latest, keys))
    return scan_in_python(
        data,
        start,
        end,
        count,
        base_timestamp,
        first=first,
        earliest=earliest,
        latest=latest,
        keys=keys,
        pause=pause,
    )


def scan_in_python(
    data: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    *,
    first: int = 0,
    earliest: int = INT64_MIN,
    latest: int = INT64_MAX,
    keys: bool = False,
    pause: Callable[[], object] | None = None,
) -> Scan:
    """:func:`scan` without the compiled module."""
    body = bytes(memoryview(data)[start:end])
    found = None if first else _scan_runs(body, count, base_timestamp, earliest, latest, keys)
    if found is None:
        found = _walk(body, first, count, Findings(base_timestamp, earliest, latest, keys), pause)
    return found._replace(position=found.position + start)


# Far enough from the ends of int64 that no delta of nine bytes leaves it.
_SAFE: Final = 2**62


def _scan_runs(
    body: bytes, count: int, base_timestamp: int, earliest: int, latest: int, keys: bool
) -> Scan | None:
    """The scan of a batch of regular records, none of them refused; None for any other."""
    if not -_SAFE < base_timestamp < _SAFE or count <= 0:
        return None
    header = BatchHeader(0, 0, 0, 2, 0, 0, count - 1, base_timestamp, 0, -1, -1, -1, count)
    runs = find_runs(body, 0, len(body), header)
    if runs is None or (keys and any(run.key_size < 0 for run in runs)):
        return None
    timestamps = [timestamp for run in runs for timestamp, _ in run.timestamps]
    if any(not earliest <= timestamp <= latest and timestamp != -1 for timestamp in timestamps):
        return None
    return Scan(FINE, count, len(body), max(-1, *timestamps), 0, 0, 0, [])


class WrongRecordError(Exception):
    """A record breaks the format; ``reason`` says how. Or a walk has FOUND the one that it looks for."""

    def __init__(self, reason: int) -> None:
        super().__init__(REASONS.get(reason))
        self.reason = reason


@dataclass(eq=False, slots=True)
class Findings:
    """The findings of a scan so far, and what it is to refuse or to look for."""

    _base: int
    _earliest: int
    _latest: int
    keys: bool
    max_timestamp: int = field(default=-1, init=False)
    renumber: int = field(default=0, init=False)
    without_key: int = field(default=0, init=False)
    out_of_range: int = field(default=0, init=False)
    refused: list[tuple[int, int, int]] = field(default_factory=list, init=False)
    since: tuple[int, int] | None = field(default=None, init=False)
    """The offset delta and timestamp from which on a record is looked for."""
    found: tuple[int, int] | None = field(default=None, init=False)
    newest: tuple[int, int] | None = field(default=None, init=False)

    @property
    def quick_deltas(self) -> tuple[int, int]:
        """The timestamp deltas from 0 up that need no closer look; the second is less than the first without any."""
        lowest = max(0, self._earliest - self._base)
        return lowest, min(self._latest, INT64_MAX) - self._base

    def add_quick(self, largest_delta: int) -> None:
        """Count records with deltas within :attr:`quick_deltas`."""
        self.max_timestamp = max(self.max_timestamp, self._base + largest_delta)

    def add(self, index: int, timestamp_delta: int, offset_delta: int, has_key: bool) -> None:
        """Count a record. Raises WrongRecordError: TIMESTAMP; FOUND if it is the one that is looked for."""
        timestamp = self._base + timestamp_delta
        if not INT64_MIN <= timestamp <= INT64_MAX:
            raise WrongRecordError(TIMESTAMP)
        self.max_timestamp = max(self.max_timestamp, timestamp)
        if offset_delta != index:
            self.renumber = 1
        if self.keys and not has_key:
            self.without_key += 1
            self._refuse(index, timestamp, NO_KEY)
        elif not self._earliest <= timestamp <= self._latest and timestamp != -1:
            self.out_of_range += 1
            self._refuse(index, timestamp, OUT_OF_RANGE)
        if self.since is not None and offset_delta >= self.since[0]:
            if self.newest is None or timestamp > self.newest[1]:
                self.newest = offset_delta, timestamp
            if timestamp >= self.since[1]:
                self.found = offset_delta, timestamp
                raise WrongRecordError(FOUND)

    def _refuse(self, index: int, timestamp: int, why: int) -> None:
        if len(self.refused) < MOST_REFUSED:
            self.refused.append((index, timestamp, why))

    def add_scan(self, found: Scan) -> None:
        """Count the records of a scan of some of the batch's records."""
        self.max_timestamp = max(self.max_timestamp, found.max_timestamp)
        self.renumber |= found.renumber
        self.without_key += found.without_key
        self.out_of_range += found.out_of_range
        self.refused += found.refused[: MOST_REFUSED - len(self.refused)]

    def result(self, reason: int, record: int, position: int) -> Scan:
        return Scan(
            reason,
            record,
            position,
            self.max_timestamp,
            self.renumber,
            self.without_key,
            self.out_of_range,
            self.refused,
        )


# The number of a zigzag varint's only byte, or a first byte's share of two, and the second byte's share. None for a
# byte that can't stand there, or a negative number: the sum then raises TypeError, and the record is read with care.
_LOW: list[Any] = [None if byte & 1 else (byte & 127) >> 1 for byte in range(256)]
_HIGH: list[Any] = [byte << 6 if byte < 128 else None for byte in range(256)]
_eight_bytes = Struct("8B").unpack_from


def _walk(
    data: bytes, first: int, count: int, findings: Findings, pause: Callable[[], object] | None
) -> Scan:
    """A scan record by record: usual ones in a quick loop like that of ``record``, the others with care."""
    size = len(data)
    start = 0
    index = first
    low, high, eight_bytes = _LOW, _HIGH, _eight_bytes
    lowest, highest = findings.quick_deltas
    largest = -1
    # With keys, a record without one is read with care.
    keyless: Any = None if findings.keys else 0
    reason = FINE
    try:
        for index in range(first, first + count):
            if pause is not None and not index % _RECORDS_A_TURN:
                pause()
            try:
                a, b, c, d, e, f, g, h = eight_bytes(data, start)
                if a > 127:
                    end = start + 2 + low[a] + high[b]
                    at = start
                else:
                    # A length of one byte: continue as if the record had begun a byte earlier.
                    end = start + 1 + low[a]
                    d, e, f, g, h = c, d, e, f, g
                    at = start - 1
                if d < 128:
                    stamp = low[d]
                    if e < 128:
                        delta = low[e]
                        n = f
                        at += 6
                    else:
                        delta = low[e] + high[f]
                        n = g
                        at += 7
                else:
                    stamp = low[d] + high[e]
                    if f < 128:
                        delta = low[f]
                        n = g
                        at += 7
                    else:
                        delta = low[f] + high[g]
                        n = h
                        at += 8
                # n is the first byte of the key's length; at is after it.
                if n == 1:
                    at += keyless
                elif n < 128:
                    at += low[n]
                else:
                    at += 1 + low[n] + high[data[at]]
                n = data[at]
                if n < 128:
                    at += 1 if n == 1 else 1 + low[n]
                else:
                    at += 2 + low[n] + high[data[at + 1]]
                if data[at] == 0 and at + 1 == end and delta == index and lowest <= stamp <= highest:
                    if stamp > largest:
                        largest = stamp
                    start = end
                    continue
            except (IndexError, TypeError, StructError):
                pass  # out of the ordinary, or wrong: the careful reader says which
            start = read_with_care(data, start, size, index, findings)
        index = first + max(count, 0)
        if start != size:
            reason = TRAILING
    except WrongRecordError as wrong:
        reason = wrong.reason
    if largest >= 0:
        findings.add_quick(largest)
    return findings.result(reason, index, start)


_new = tuple.__new__


class RecordSpan(NamedTuple):
    """Where a record lies in a body, and what compaction has to know of it."""

    start: int
    end: int
    # Behind the attributes.
    timestamp_at: int
    offset_at: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def read_with_care(data: bytes, start: int, size: int, index: int, findings: Findings) -> int:
    """Read a record of any kind; where it ends. Raises WrongRecordError."""
    record = read_record(data, start, size)
    findings.add(index, record.timestamp_delta, record.offset_delta, record.key is not None)
    return record.end


def read_record(data: bytes, start: int, size: int) -> RecordSpan:
    """The record at ``start`` of the ``size`` bytes, with every number checked. Raises WrongRecordError."""
    length, at = read_number(data, start, size)
    if length < 0:
        raise WrongRecordError(LENGTH)
    if not 0 < length <= size - at:
        raise WrongRecordError(CUT)
    end = at + length
    timestamp_at = at + 1
    timestamp_delta, offset_at = read_number(data, timestamp_at, end, 10)
    offset_delta, at = read_number(data, offset_at, end)
    key_size, key_at = read_number(data, at, end)
    at = key_at + (key_size if 0 <= key_size <= end - key_at else field_size(key_size, end - key_at))
    key = None if key_size < 0 else data[key_at:at]
    value_size, at = read_number(data, at, end)
    has_value = value_size >= 0
    at += value_size if 0 <= value_size <= end - at else field_size(value_size, end - at)
    headers, at = read_number(data, at, end)
    if headers:
        check_header_count(headers, end - at)
    for _ in range(headers):
        name_size, at = read_number(data, at, end)
        value_size, at = read_number(data, at + header_name_size(name_size, end - at), end)
        at += header_value_size(value_size, end - at)
    if at != end:
        raise WrongRecordError(ENDS)
    span = (start, end, timestamp_at, offset_at, timestamp_delta, offset_delta, key, has_value)
    return _new(RecordSpan, span)


def read_number(data: bytes, at: int, end: int, most: int = 5) -> tuple[int, int]:
    """A zigzag number of up to ``most`` bytes (5: 32 bits, 10: 64 bits), and the position after it.

    Raises WrongRecordError: NUMBER, CUT.
    """
    # Numbers of one and two bytes, which nearly all are, without a loop.
    if at < end and (byte := data[at]) < 128:
        return (byte >> 1) ^ -(byte & 1), at + 1
    if at + 1 < end and (second := data[at + 1]) < 128:
        return ((byte & 127) >> 1 | second << 6) ^ -(byte & 1), at + 2
    number = shift = 0
    for _ in range(most):
        if at >= end:
            raise WrongRecordError(CUT)
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number >> (32 if most == 5 else 64):
                break
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise WrongRecordError(NUMBER)


def field_size(size: int, left: int) -> int:
    """The bytes of a key or value of ``size``, -1 for a missing one. Raises WrongRecordError: FIELD."""
    if not -1 <= size <= left:
        raise WrongRecordError(FIELD)
    return max(size, 0)


def check_header_count(count: int, left: int) -> None:
    """Raises WrongRecordError: HEADERS. A header has two lengths at least."""
    if not 0 <= count <= left // 2:
        raise WrongRecordError(HEADERS)


def header_name_size(size: int, left: int) -> int:
    """Raises WrongRecordError: HEADER."""
    if not 0 <= size <= left:
        raise WrongRecordError(HEADER)
    return size


def header_value_size(size: int, left: int) -> int:
    """Raises WrongRecordError: HEADER."""
    if not -1 <= size <= left:
        raise WrongRecordError(HEADER)
    return max(size, 0)
