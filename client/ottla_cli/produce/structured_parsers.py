"""Parsers for input with fields: JSON lines, and CSV with a header row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import click

from ottla_cli.shared.json_source import Number, decode, decode_numbers, source_of
from ottla_client.suggestions import did_you_mean

from ..shared.timefmt import parse_time
from .parsers import LONGEST, Fields, ParseFailure, Parser, Records

if TYPE_CHECKING:
    from ottla_protocol.records.record import Headers

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_MISSING = object()


class _WrongError(ValueError):
    """One line is invalid."""


class _StructuredParser(Parser):
    """Builds records one by one from lines with fields."""

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields)
        self._plain = not any(fields.names())

    def _empty(self, file: str) -> Records:
        fields = self.fields
        return Records(
            file,
            lines=[],
            keys=None if fields.key is None else [],
            headers=[] if fields.header_fields or fields.headers else None,
            timestamps=None if fields.timestamp is None else [],
        )

    def _add(self, records: Records, line: int, value: bytes | None, get: Callable[[str], Any]) -> None:
        """Add a record from the fields that ``get`` returns (_MISSING for none). Raises ValueError before adding it."""
        fields = self.fields
        if fields.value is not None:
            value = _bytes_of(_present(get, fields.value))
        if value is not None and value == fields.null_value:
            value = None
        key = None if fields.key is None else _bytes_of(_present(get, fields.key))
        timestamp = None if fields.timestamp is None else _timestamp_of(fields.timestamp, get)
        headers: Headers = fields.headers
        for name, source in fields.header_fields:
            if (found := get(source)) is not _MISSING:
                headers = (*headers, (name, _bytes_of(found)))
        records.values.append(value)
        records.lines.append(line)  # type: ignore[attr-defined]
        if records.keys is not None:
            records.keys.append(key)
        if records.headers is not None:
            records.headers.append(headers)
        if records.timestamps is not None and timestamp is not None:
            records.timestamps.append(timestamp)


def _present(get: Callable[[str], Any], name: str) -> Any:
    value = get(name)
    if value is _MISSING:
        raise _WrongError(f"no field {name!r}")
    return value


def _bytes_of(value: Any) -> bytes | None:
    """A field as bytes: text as it is, null as no value, anything else as it stands in the document."""
    if value is None:
        return None
    return (value if isinstance(value, str) else _encode(value)).encode()


def _timestamp_of(name: str, get: Callable[[str], Any]) -> int:
    value = _present(get, name)
    if isinstance(value, Number):
        try:
            number = Decimal(value)
        except InvalidOperation:
            number = Decimal(-1)
        if not 0 <= number < 1 << 62:
            raise _WrongError(f"{name!r} is not a timestamp: {value[:40]}")
        return int(number)
    if not isinstance(value, str):
        raise _WrongError(f"{name!r} is not a timestamp: {_encode(value)[:40]}")
    return parse_time(value)


class JsonParser(_StructuredParser):
    """One JSON value per line, sent unchanged, or one of its fields. Empty lines are skipped."""

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields)
        self._decode = decode if fields.timestamp is None else decode_numbers

    def parse(self, file: str, block: bytes, last: bool) -> Records:
        records = self._empty(file)
        lines, numbers = self._lines(block)
        for line, number in zip(lines, numbers, strict=True):
            if not line or line.isspace():
                continue
            try:
                text = line.decode()
                self._add(records, number, line, _getter(text, self._decode(text)))
            except UnicodeDecodeError as error:
                reason = f"not UTF-8 at byte {error.start + 1}"
            except json.JSONDecodeError as error:
                reason = f"not JSON: {error.msg} (column {error.colno})"
            except UnicodeEncodeError:
                reason = "a field has half a surrogate pair, which UTF-8 can't encode"
            except RecursionError:
                reason = "not JSON: nested too deeply"
            except ValueError as error:
                reason = str(error)
            else:
                continue
            records.failures.append(ParseFailure(file, number, reason, line))
        return records


def _getter(text: str, document: Any) -> Callable[[str], Any]:
    """Finds fields by name, or by a path like ``user.id``. Objects and arrays are found as their text."""

    def get(name: str) -> Any:
        if not isinstance(document, dict):
            raise _WrongError(f"not an object, so it has no field {name!r}")
        found: Any = document
        for part in (name,) if name in document else name.split("."):
            if not isinstance(found, dict) or part not in found:
                return _MISSING
            found = found[part]
        return source_of(text, name) if isinstance(found, (dict, list)) else found

    return get


class CsvParser(_StructuredParser):
    """CSV (RFC 4180) whose first row names the columns. A record is a JSON object of a row, or one column of it."""

    def __init__(self, fields: Fields) -> None:
        csv.field_size_limit(LONGEST)
        super().__init__(fields)

    def _start(self) -> None:
        super()._start()
        self._names: list[str] | None = None
        self._index: dict[str, int] = {}
        self._open = ""
        """The lines of a row with open quotes."""

    def parse(self, file: str, block: bytes, last: bool) -> Records:
        records = self._empty(file)
        text = self._open + block.decode(errors="surrogateescape")
        self._open = ""
        lines = list(io.StringIO(text, newline="\n"))
        reader = csv.reader(lines, delimiter=self.fields.delimiter, strict=True)
        while True:
            begin = reader.line_num
            try:
                row = next(reader)
                if self._names is None:
                    self._take_names(file, row)
                elif row:
                    self._add_row(records, self._line + begin, row)
                continue
            except StopIteration:
                break
            except UnicodeEncodeError:
                reason = "not UTF-8"
            except csv.Error as error:
                reason = str(error)
                if reason == "unexpected end of data":
                    if not last:
                        self._open = "".join(lines[begin:])
                        self._check_length(file, len(self._open))
                        self._line += begin
                        return records
                    reason = "a quote that is never closed"
            except ValueError as error:
                reason = str(error)
            bad = "".join(lines[begin : reader.line_num]).encode(errors="surrogateescape")
            records.failures.append(ParseFailure(file, self._line + begin, reason, bad.rstrip(b"\r\n")))
        self._line += len(lines)
        return records

    def _take_names(self, file: str, row: list[str]) -> None:
        """Read the header row. An invalid one makes the file unusable: raises click.ClickException."""
        where = f"{file}:{self._line}: the header row"
        if not row or len(set(row)) < len(row):
            raise click.ClickException(f"{where} {'has a name twice' if row else 'is empty'}")
        try:
            ",".join(row).encode()
        except UnicodeEncodeError:
            raise click.ClickException(f"{where} is not UTF-8") from None
        for name in self.fields.names():
            if name not in row:
                raise click.ClickException(f"{where} has no column {name!r}{did_you_mean(name, row)}")
        self._names = row
        self._index = {name: index for index, name in enumerate(row)}

    def _add_row(self, records: Records, line: int, row: Sequence[str]) -> None:
        names, index = self._names, self._index
        assert names is not None
        if len(row) != len(names):
            raise _WrongError(f"{len(row)} fields, but the header row has {len(names)}")
        value = None
        if self.fields.value is None:
            null = self.fields.null_value
            cells: Sequence[str | None] = row
            if null is not None and (text := null.decode(errors="surrogateescape")) in row:
                cells = [None if cell == text else cell for cell in row]
            value = _encode(dict(zip(names, cells, strict=True))).encode()
        if self._plain and records.headers is None:
            records.values.append(value)
            records.lines.append(line)  # type: ignore[attr-defined]
        else:
            self._add(records, line, value, lambda name: row[index[name]])
