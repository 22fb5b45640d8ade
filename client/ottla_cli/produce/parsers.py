"""Parsers for the input of ``ottla produce``: columns of keys and values out of lines or whole files.

JSON and CSV are in ``structured_parsers``. A parser gets a file in pieces as they are read and returns the records of
each. A line that isn't a record becomes a `ParseFailure` with its number; the records around it are unaffected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ottla_protocol.records.record import Headers

    from .input_files import Piece

# A longer line, or CSV row with line breaks, is a mistake, not a record.
LONGEST = 64 << 20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """A line that isn't a record: where it is, the reason, and its text."""

    file: str
    line: int
    reason: str
    text: bytes

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(slots=True)
class Records:
    """Records in columns. ``lines`` has the line number of each; ``read`` is the number of bytes read so far."""

    file: str
    values: list[bytes | None] = field(default_factory=list)
    lines: Sequence[int] = ()
    keys: list[bytes | None] | None = None
    headers: list[Headers] | None = None
    timestamps: list[int] | None = None
    failures: list[ParseFailure] = field(default_factory=list)
    read: int = 0

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Fields:
    """Which CSV columns or JSON fields become which parts of a record.

    ``null_value`` is the text that becomes null, a tombstone. ``headers`` are added to every record; ``header_fields``
    maps headers to the fields that have their values.
    """

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    header_fields: tuple[tuple[str, str], ...] = ()
    headers: Headers = ()
    key_separator: bytes | None = None
    null_value: bytes | None = None
    delimiter: str = ","

    def names(self) -> Iterator[str]:
        yield from (name for name in (self.key, self.value, self.timestamp) if name is not None)
        yield from (name for _, name in self.header_fields)


class Parser(ABC):
    """Cuts pieces into whole lines, which subclasses parse."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self._read = 0
        self._start()

    def _start(self) -> None:
        self._line = 1
        self._at_start = True
        self._rest: list[bytes] = []
        self._waiting = 0

    def feed(self, piece: Piece) -> Records:
        """The records of the lines that this piece completes. Raises click.ClickException for a line without end."""
        self._read += len(piece.data)
        cut = len(piece.data) if piece.last else piece.data.rfind(b"\n") + 1
        records = Records(piece.file)
        if cut or piece.last:
            block = b"".join((*self._rest, piece.data[:cut]))
            self._rest = [piece.data[cut:]]
            self._waiting = len(piece.data) - cut
            if self._at_start and block:
                self._at_start = False
                block = block.removeprefix(_BOM)
            if block or piece.last:
                records = self.parse(piece.file, block, piece.last)
        else:
            self._rest.append(piece.data)
            self._waiting += len(piece.data)
            self._check_length(piece.file, self._waiting)
        records.read = self._read
        if piece.last:
            self._start()
        return records

    def _check_length(self, file: str, length: int) -> None:
        if length > LONGEST:
            raise click.ClickException(
                f"{file}:{self._line}: no line end within {LONGEST >> 20} MiB; is --format right?"
            )

    @abstractmethod
    def parse(self, file: str, block: bytes, last: bool) -> Records:
        """The records of whole lines. With ``last``, at the end of the file, ``block`` may be empty."""

    def _lines(self, block: bytes) -> tuple[list[bytes], range]:
        """Lines without their ends (LF or CRLF), and their numbers."""
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        numbers = range(self._line, self._line + len(lines))
        self._line += len(lines)
        return lines, numbers

    def _nulls(self, values: list[bytes | None]) -> list[bytes | None]:
        """The values with None for the null text."""
        null = self.fields.null_value
        if null is None or null not in values:
            return values
        return [None if value == null else value for value in values]


class LineParser(Parser):
    """One record per line; with a separator, the part before its first occurrence is the key."""

    def parse(self, file: str, block: bytes, last: bool) -> Records:
        lines, numbers = self._lines(block)
        separator, headers = self.fields.key_separator, self.fields.headers
        records = Records(file, lines=numbers)
        values: list[bytes] = lines
        if separator is not None and lines:
            keys, found, values = map(list, zip(*[line.partition(separator) for line in lines], strict=True))
            if b"" in found:
                reason = f"no {separator.decode(errors='replace')!r} after a key"
                records.failures = [
                    ParseFailure(file, number, reason, line)
                    for line, mark, number in zip(lines, found, numbers, strict=True)
                    if not mark
                ]
                keys, values, records.lines = (list(compress(c, found)) for c in (keys, values, numbers))
            records.keys = keys
        records.values = self._nulls(values)  # type: ignore[arg-type]
        if headers:
            records.headers = [headers] * len(values)
        return records


class FileParser(Parser):
    """Each file is one record, byte for byte."""

    def feed(self, piece: Piece) -> Records:
        self._read += len(piece.data)
        self._rest.append(piece.data)
        self._waiting += len(piece.data)
        self._check_length(piece.file, self._waiting)
        return (
            self.parse(piece.file, b"".join(self._rest), True)
            if piece.last
            else Records(piece.file, read=self._read)
        )

    def parse(self, file: str, block: bytes, last: bool) -> Records:
        self._start()
        headers = [self.fields.headers] if self.fields.headers else None
        return Records(file, self._nulls([block]), range(1, 2), headers=headers, read=self._read)
