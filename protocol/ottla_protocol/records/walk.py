"""Walks the records of a body that comes in pieces: never a record as a whole, and a bounded piece of work at a time.

A walk checks records as :mod:`.scan` does, and may look for one of them by its timestamp. A record that lies across
pieces is read number by number, and its key, value and headers are passed over. The compiled twin does the same.

Work counts whether it yields records or not: a compressed body may consist of a million empty members, blocks or
frames, and each costs ``LEAST_COST``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ottla_protocol.records.batch import CODEC_MASK, HEADER_SIZE
from ottla_protocol.records.compression import decompress_parts
from ottla_protocol.records.record import encode_varint
from ottla_protocol.records.scan import (
    CUT,
    ENDS,
    FINE,
    INT64_MAX,
    INT64_MIN,
    LENGTH,
    TRAILING,
    Findings,
    Scan,
    WrongRecordError,
    check_header_count,
    field_size,
    header_name_size,
    header_value_size,
    module,
    read_number,
    read_with_care,
    scan_in_python,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from typing_extensions import Buffer

    from ottla_protocol.records.batch import BatchHeader

PIECE_BYTES: Final = 64 * 1024 if module else 2 * 1024
"""The bytes that are walked between two steps: some hundred microseconds of work."""
LEAST_COST: Final = 32 * 1024 if module else 1024
"""What a part of a compressed body costs at least, in bytes; it takes ten microseconds. The first is free of this."""
_STEPS_A_PAUSE: Final = 32 if module else 4
_NUMBER_BYTES: Final = 10

Place: TypeAlias = "tuple[int, int]"
"""A record's offset delta and timestamp."""


class Walk(Protocol):
    """A walk through one batch's records, in one thread."""

    def feed(self, data: Buffer, start: int, end: int, /) -> bool:
        """Walk on through the body's next bytes, ``data[start:end]``; False if the walk has come to its end.

        That is a record that can't be read, one that was looked for, or bytes behind the last record.
        """
        ...

    def result(self) -> tuple[Any, ...]:
        """The fields of a :class:`.Scan`, when the body has ended; positions count from its beginning."""
        ...

    def found(self) -> Place | None:
        """The record that was looked for."""
        ...

    def newest(self) -> Place | None:
        """The first of the records with the largest timestamp, from the walk's ``since_delta`` on."""
        ...


def walk(
    count: int,
    base_timestamp: int,
    *,
    earliest: int = INT64_MIN,
    latest: int = INT64_MAX,
    keys: bool = False,
    since: tuple[int, int] | None = None,
) -> Walk:
    """Begin a walk through ``count`` records, to be checked as :func:`.scan` does.

    With ``since`` it ends at the first record with at least this offset delta and this timestamp.
    """
    new = PythonWalk if module is None else module.Walk
    begun: Walk = new(0, count, base_timestamp, earliest, latest, keys, since is not None, *(since or (0, 0)))
    return begun


def body_parts(
    batch: Buffer,
    header: BatchHeader,
    max_bytes: int | None = None,
    *,
    for_java: bool = False,
    charge: Callable[[int], object] | None = None,
) -> Iterator[Buffer]:
    """The bytes of a batch's records, decompressed part by part. Raises as :func:`.decompress_parts`.

    ``charge`` is called with what each part costs, and may raise an error of its own.
    """
    codec = header.attributes & CODEC_MASK
    data = memoryview(batch)[HEADER_SIZE:]
    parts: Iterator[Buffer] = iter((data,))
    if codec:
        parts = decompress_parts(codec, data, max_bytes, for_java=for_java)
    least = 0
    for part in parts:
        if charge is not None:
            charge(max(memoryview(part).nbytes, least))
            least = LEAST_COST
        yield part


def run_steps(steps: Iterable[None], pause: Callable[[], object] | None) -> None:
    """Take all the steps, with a ``pause`` after every few milliseconds."""
    for number, _ in enumerate(steps, 1):
        if pause is not None and not number % _STEPS_A_PAUSE:
            pause()


def steps_through(parts: Iterable[Buffer], feed: Callable[[Buffer, int, int], object]) -> Iterator[None]:
    """Feed the parts to a walk, in steps of at most ``PIECE_BYTES`` of work, until it says False."""
    cost = 0
    for part in parts:
        size = memoryview(part).nbytes
        at = 0
        while at < size:
            end = min(at + PIECE_BYTES, size)
            if feed(part, at, end) is False:
                return
            if end < size:
                yield
            at = end
        cost += max(size, LEAST_COST)
        if cost >= PIECE_BYTES:
            cost = 0
            yield


def scan_compressed(
    batch: Buffer,
    header: BatchHeader,
    *,
    max_bytes: int | None = None,
    charge: Callable[[int], object] | None = None,
    earliest: int = INT64_MIN,
    latest: int = INT64_MAX,
    keys: bool = False,
    pause: Callable[[], object] | None = None,
) -> Scan:
    """:func:`.scan` of the records of a compressed batch; positions count decompressed bytes.

    ``pause`` is called now and then, and ``charge`` as by :func:`body_parts`. Raises CorruptRecordError for data
    that can't be decompressed by Ottla or by Java clients, DecompressedTooLargeError above ``max_bytes``.
    """
    begun = walk(header.record_count, header.base_timestamp, earliest=earliest, latest=latest, keys=keys)
    parts = body_parts(batch, header, max_bytes, for_java=True, charge=charge)
    run_steps(steps_through(parts, begun.feed), pause)
    return Scan(*begun.result())


class PythonWalk:
    """The walk without the compiled module."""

    def __init__(
        self,
        first: int,
        count: int,
        base_timestamp: int,
        earliest: int,
        latest: int,
        keys: bool,
        finds: bool,
        since_delta: int,
        since_timestamp: int,
        /,
    ) -> None:
        self._scan = partial(
            scan_in_python, base_timestamp=base_timestamp, earliest=earliest, latest=latest, keys=keys
        )
        self._findings = Findings(base_timestamp, earliest, latest, keys)
        if finds:
            self._findings.since = since_delta, since_timestamp
        self._record = first
        self._end = first + count
        self._data = b""
        self._at = self._passed = self._start = self._left = 0
        self._reason: int | None = None
        self._steps = self._walk()
        next(self._steps)

    def feed(self, data: Buffer, start: int, end: int, /) -> bool:
        self._passed += len(self._data)
        self._data = bytes(memoryview(data)[start:end])
        self._at = 0
        if self._reason is None:
            next(self._steps, None)
        return self._reason is None

    def result(self) -> tuple[Any, ...]:
        if self._reason is None:
            is_whole = self._record >= self._end
            if is_whole:
                self._start = self._passed + self._at
            self._reason = FINE if is_whole else CUT
        return self._findings.result(self._reason, self._record, self._start)

    def found(self) -> Place | None:
        return self._findings.found

    def newest(self) -> Place | None:
        return self._findings.newest

    def _walk(self) -> Generator[None, None, None]:
        """Yields whenever it has read all that there is."""
        try:
            while True:
                self._start = self._passed + self._at
                yield from self._more()
                if self._record >= self._end:
                    self._reason = TRAILING
                    return
                if not self._whole_records():
                    self._findings.add(self._record, *(yield from self._read_record()))
                    self._record += 1
        except WrongRecordError as wrong:
            self._reason = wrong.reason

    def _more(self) -> Generator[None, None, None]:
        """Wait for a byte."""
        while self._at == len(self._data):
            yield

    def _whole_records(self) -> bool:
        """Read the records that lie in the data as a whole; False for none. Raises WrongRecordError."""
        if self._findings.since is not None:
            if not self._has_record():
                return False
            self._at = read_with_care(self._data, self._at, len(self._data), self._record, self._findings)
            self._record += 1
            return True
        size = len(self._data)
        left = self._end - self._record
        found = self._scan(self._data, self._at, size, left, first=self._record)
        self._findings.add_scan(found)
        is_one = found.record > self._record
        self._record, self._at = found.record, found.position
        self._start = self._passed + self._at
        if found.reason in (FINE, TRAILING):
            return True
        if found.reason != CUT or self._has_record():
            raise WrongRecordError(found.reason)
        return is_one

    def _has_record(self) -> bool:
        """Whether the record that begins here ends within the data, or can't be one."""
        try:
            length, at = read_number(self._data, self._at, len(self._data))
        except WrongRecordError as wrong:
            return wrong.reason != CUT
        return length <= len(self._data) - at

    def _read_record(self) -> Generator[None, None, tuple[int, int, bool]]:
        """A record's timestamp delta, offset delta, and whether it has a key. Raises WrongRecordError."""
        self._left = _NUMBER_BYTES
        length = yield from self._number()
        if length < 0:
            raise WrongRecordError(LENGTH)
        if length == 0:
            raise WrongRecordError(CUT)
        self._left = length
        yield from self._skip(1)
        timestamp_delta = yield from self._number(10)
        offset_delta = yield from self._number()
        key_size = yield from self._number()
        yield from self._skip(field_size(key_size, self._left))
        value_size = yield from self._number()
        yield from self._skip(field_size(value_size, self._left))
        headers = yield from self._number()
        check_header_count(headers, self._left)
        for _ in range(headers):
            size = yield from self._number()
            yield from self._skip(header_name_size(size, self._left))
            size = yield from self._number()
            yield from self._skip(header_value_size(size, self._left))
        if self._left:
            raise WrongRecordError(ENDS)
        return timestamp_delta, offset_delta, key_size >= 0

    def _number(self, most: int = 5) -> Generator[None, None, int]:
        """Read a number within what is left of the record. Raises WrongRecordError."""
        held = b""
        while True:
            data, at = self._data, self._at
            size = min(len(data) - at, self._left - len(held), most - len(held))
            if not held and size and data[at] < 128:
                self._at += 1
                self._left -= 1
                return (data[at] >> 1) ^ -(data[at] & 1)
            held += data[at : at + size]
            try:
                number, used = read_number(held, 0, len(held), most)
            except WrongRecordError as wrong:
                if wrong.reason != CUT or len(held) >= self._left:
                    raise
                self._at += size
                yield
                continue
            self._at += size - (len(held) - used)
            self._left -= used
            return number

    def _skip(self, count: int) -> Generator[None, None, None]:
        self._left -= count
        while count > len(self._data) - self._at:
            count -= len(self._data) - self._at
            self._at = len(self._data)
            yield
        self._at += count


class PythonRenumber:
    """Writes records again, with offset deltas 0, 1, 2 …; they have been found fine."""

    def __init__(self) -> None:
        self._index = 0
        self._held = b""
        self._left = 0

    def feed(self, data: Buffer, start: int, end: int, /) -> bytes:
        body = self._held + bytes(memoryview(data)[start:end])
        at = min(self._left, len(body))
        written = bytearray(body[:at])
        self._left -= at
        size = len(body)
        while at < size:
            try:
                length, begin = read_number(body, at, size)
                _, stamp_end = read_number(body, begin + 1, size, 10)
                _, rest = read_number(body, stamp_end, size)
            except WrongRecordError:
                break
            delta = encode_varint(self._index)
            self._index += 1
            after = begin + length
            written += encode_varint(stamp_end - begin + len(delta) + after - rest)
            written += body[begin:stamp_end]
            written += delta
            written += body[rest:after]
            self._left = max(0, after - size)
            at = min(after, size)
        self._held = body[at:]
        return bytes(written)


def renumbering() -> Callable[[Buffer, int, int], bytes]:
    """A feed that writes a batch's records again, with offset deltas 0, 1, 2 …; a walk has found them fine."""
    new = PythonRenumber if module is None else module.Renumber
    feed: Callable[[Buffer, int, int], bytes] = new().feed
    return feed
