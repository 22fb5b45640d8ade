"""Scans a compressed batch while it is decompressed, so that the whole body is never in memory.

The whole records in a part are scanned at once. The record that lies across two parts is read number by number, and
its key, value and headers are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from ottla_protocol.records.compression import DecompressedTooLargeError, decompress_parts
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
    read_number,
    scan,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

PART_BYTES: Final = 1024 * 1024
"""Smaller parts are joined before they are scanned."""
_NUMBER_BYTES: Final = 10


def scan_compressed(
    codec: int,
    data: Buffer,
    count: int,
    base_timestamp: int,
    *,
    max_bytes: int | None = None,
    max_parts: int | None = None,
    earliest: int = INT64_MIN,
    latest: int = INT64_MAX,
    keys: bool = False,
    pause: Callable[[], object] | None = None,
) -> Scan:
    """:func:`.scan` of the records in the compressed ``data``; positions count decompressed bytes.

    Raises CorruptRecordError for data that can't be decompressed by Ottla or by Java clients, DecompressedTooLargeError
    above ``max_bytes`` and for more than ``max_parts`` members, frames or chunks.
    """
    parts = joined(_limited(decompress_parts(codec, data, max_bytes, for_java=True), max_parts))
    body = next(parts, b"")
    following = next(parts, None)
    if following is None:
        return scan(
            body,
            0,
            len(body),
            count,
            base_timestamp,
            earliest=earliest,
            latest=latest,
            keys=keys,
            pause=pause,
        )
    findings = Findings(base_timestamp, earliest, latest, keys)
    source = _Source(body, chain((following,), parts))
    index = 0
    try:
        while index < count:
            found = scan(
                source.part,
                source.at,
                len(source.part),
                count - index,
                base_timestamp,
                first=index,
                earliest=earliest,
                latest=latest,
                keys=keys,
                pause=pause,
            )
            source.at = found.position
            if found.reason == CUT and not source.has_record():
                findings.add_scan(found)
                index = found.record
                source.start()
                findings.add(index, *_read_record(source))
                index += 1
            elif found.reason in (FINE, TRAILING):
                findings.add_scan(found)
                index = found.record
            else:
                return found._replace(position=source.position)
        source.start()
    except WrongRecordError as wrong:
        return findings.result(wrong.reason, index, source.record_position)
    return findings.result(FINE if source.is_empty() else TRAILING, index, source.record_position)


def _limited(parts: Iterator[bytes], most: int | None) -> Iterator[bytes]:
    """The same parts. Raises DecompressedTooLargeError for more than ``most``."""
    for count, part in enumerate(parts):
        if count == most:
            raise DecompressedTooLargeError(count)
        yield part


def joined(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in parts of PART_BYTES at least, but for the last."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= PART_BYTES:
            yield held[0] if len(held) == 1 else b"".join(held)
            held.clear()
            size = 0
    if held:
        yield b"".join(held)


@dataclass(eq=False, slots=True)
class _Source:
    """The decompressed bytes: the current part, and how far it is read."""

    part: bytes
    _parts: Iterator[bytes]
    at: int = field(default=0, init=False)
    record_position: int = field(default=0, init=False)
    _passed: int = field(default=0, init=False)

    @property
    def position(self) -> int:
        return self._passed + self.at

    def start(self) -> None:
        """A record begins here."""
        self.record_position = self.position

    def has_record(self) -> bool:
        """Whether the record that begins here ends within the part, or can't be one. Reads nothing more."""
        try:
            length, at = read_number(self.part, self.at, len(self.part))
        except WrongRecordError as wrong:
            return wrong.reason != CUT
        return length <= len(self.part) - at

    def is_empty(self) -> bool:
        """Whether nothing follows."""
        return self.at == len(self.part) and not self._more()

    def _more(self) -> bool:
        """Append the next part to what is left of the current one; False at the end."""
        for part in self._parts:
            if part:
                self._passed += self.at
                self.part = self.part[self.at :] + part
                self.at = 0
                return True
        return False

    def number(self, left: int, most: int = 5) -> tuple[int, int]:
        """Read a number within the next ``left`` bytes; how many are left then. Raises WrongRecordError."""
        if len(self.part) - self.at < _NUMBER_BYTES:
            self._more()
        number, at = read_number(self.part, self.at, min(len(self.part), self.at + left), most)
        left -= at - self.at
        self.at = at
        return number, left

    def skip(self, count: int) -> None:
        """Pass over bytes. Raises WrongRecordError: CUT."""
        while count > len(self.part) - self.at:
            count -= len(self.part) - self.at
            self.at = len(self.part)
            if not self._more():
                raise WrongRecordError(CUT)
        self.at += count


def _read_record(source: _Source) -> tuple[int, int, int]:
    """Read a record; its timestamp delta, offset delta and key size. Raises WrongRecordError."""
    length, _ = source.number(_NUMBER_BYTES)
    if length < 0:
        raise WrongRecordError(LENGTH)
    if length == 0:
        raise WrongRecordError(CUT)
    source.skip(1)
    timestamp_delta, left = source.number(length - 1, 10)
    offset_delta, left = source.number(left)
    key_size, left = source.number(left)
    left = _skip_field(source, field_size(key_size, left), left)
    value_size, left = source.number(left)
    left = _skip_field(source, field_size(value_size, left), left)
    headers, left = source.number(left)
    check_header_count(headers, left)
    for _ in range(headers):
        size, left = source.number(left)
        left = _skip_field(source, header_name_size(size, left), left)
        size, left = source.number(left)
        left = _skip_field(source, header_value_size(size, left), left)
    if left:
        raise WrongRecordError(ENDS)
    return timestamp_delta, offset_delta, key_size


def _skip_field(source: _Source, size: int, left: int) -> int:
    source.skip(size)
    return left - size
