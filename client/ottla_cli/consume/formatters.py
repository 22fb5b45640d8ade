"""Formats of ``ottla consume``: text, JSON, CSV, raw bytes, or a template. Each renders many records at once."""

from __future__ import annotations

import csv
import json
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import click

from ..shared.terminal import escaped_json, text_or_base64
from ..shared.timefmt import show_time

if TYPE_CHECKING:
    from ottla_client.consumer.rows import Rows
    from ottla_client.types import ConsumerRecord

    Record = ConsumerRecord[bytes, bytes]

FIELDS = ("topic", "partition", "offset", "timestamp", "headers", "key", "value")
_CSV_FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value")
_TEMPLATE_FIELDS = (*FIELDS, "time")

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# Characters that a terminal obeys, or that change the text's direction; tabs and line ends are harmless.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Formatter:
    """``head`` is written once, before all records; ``render`` turns records into bytes, line ends included."""

    render: Callable[[Rows], bytes]
    head: bytes = b""


@dataclass(frozen=True, slots=True)
class Style:
    """The options of a format. ``show`` are the fields; empty for the format's defaults.

    ``null`` is printed for a missing key or value, ``ending`` after each record (raw, template). ``at_terminal``
    escapes control characters. ``exact`` keeps bytes that aren't UTF-8, as surrogates.
    """

    show: tuple[str, ...] = ()
    null: str = "null"
    ending: bytes = b"\n"
    at_terminal: bool = False
    exact: bool = False

    def text(self, data: bytes | None) -> str:
        """Bytes as text; invalid UTF-8 as ``\\xff`` unless they are kept."""
        if data is None:
            return self.null
        text = data.decode(errors="surrogateescape" if self.exact else "backslashreplace")
        return _CONTROLS.sub(_escape, text) if self.at_terminal else text

    def name(self, name: str) -> str:
        """A header's name; bytes of it that aren't UTF-8 are surrogates in a record."""
        return self.text(name.encode(errors="surrogateescape"))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def make_formatter(form: str, style: Style, template: str | None) -> Formatter:
    """``form`` is text, json, csv or raw; a template overrides it. Raises click.BadParameter for an invalid one."""
    if template is not None:
        return Formatter(_by_template(template, style))
    if form == "csv":
        show = style.show or _CSV_FIELDS
        return Formatter(_csv_rows(show, style), (",".join(show) + "\n").encode())
    if form == "json":
        return Formatter(_json_lines_for_terminals if style.at_terminal else _json_lines)
    if form == "raw":
        return Formatter(_raw(style))
    if style.show and style.show != ("value",):
        return Formatter(_columns(style.show, style))
    return Formatter(_values(style))


def _raw(style: Style) -> Callable[[Rows], bytes]:
    """Values byte for byte, each followed by ``ending``; tombstones are empty. A terminal gets text."""
    ending = style.ending
    if style.at_terminal:
        text = Style(null="", at_terminal=True).text
        return lambda rows: b"".join([text(value).encode() + ending for value in rows.values])

    def render(rows: Rows) -> bytes:
        return ending.join([value or b"" for value in rows.values]) + ending

    return render


def _values(style: Style) -> Callable[[Rows], bytes]:
    """One value per line; plain text takes no Python statement per record."""

    def render(rows: Rows) -> bytes:
        values = rows.values
        if None not in values and not style.at_terminal:
            data = b"\n".join(values) + b"\n"
            if _is_utf8(data):
                return data
        return "".join([style.text(value) + "\n" for value in values]).encode()

    return render


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _columns(show: Sequence[str], style: Style) -> Callable[[Rows], bytes]:
    """The chosen fields, separated by tabs."""
    getters = _text_getters(show, style)

    def render(rows: Rows) -> bytes:
        return "".join(
            ["\t".join([get(record) for get in getters]) + "\n" for record in rows.records()]
        ).encode()

    return render


def _csv_rows(show: Sequence[str], style: Style) -> Callable[[Rows], bytes]:
    """Rows as in RFC 4180; null is an empty field."""
    getters = _text_getters(show, Style(null="", at_terminal=style.at_terminal))

    def render(rows: Rows) -> bytes:
        lines: list[str] = []
        # Before Python 3.13, a CR is quoted only if it is part of the line's end.
        writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n")
        writer.writerows([[get(record) for get in getters] for record in rows.records()])
        return "".join([line[:-2] + "\n" for line in lines]).encode()

    return render


def _text_getters(show: Sequence[str], style: Style) -> list[Callable[[Record], str]]:
    known: dict[str, Callable[[Record], str]] = {
        "topic": lambda record: record.topic,
        "partition": lambda record: str(record.partition),
        "offset": lambda record: str(record.offset),
        "timestamp": lambda record: show_time(record.timestamp),
        "time": lambda record: show_time(record.timestamp),
        "headers": lambda record: ",".join(
            f"{style.name(name)}={style.text(value)}" for name, value in record.headers
        ),
        "key": lambda record: style.text(record.key),
        "value": lambda record: style.text(record.value),
    }
    return [known[name] for name in show]


def _json_lines(rows: Rows) -> bytes:
    """One object per line. Timestamps are milliseconds; bytes that aren't UTF-8 are base64, and marked."""
    lines = []
    for record in rows.records():
        fields: dict[str, object] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp if record.timestamp >= 0 else None,
        }
        fields |= text_or_base64("key", record.key)
        fields |= text_or_base64("value", record.value)
        if record.headers:
            fields["headers"] = [
                {
                    **text_or_base64("name", name.encode(errors="surrogateescape")),
                    **text_or_base64("value", value),
                }
                for name, value in record.headers
            ]
        lines.append(_encode(fields) + "\n")
    return "".join(lines).encode()


def _json_lines_for_terminals(rows: Rows) -> bytes:
    return escaped_json(_json_lines(rows).decode()).encode()


def _by_template(template: str, style: Style) -> Callable[[Rows], bytes]:
    """``{field}`` or ``{field:>10}``, ``\\t``, ``\\n``; timestamp in milliseconds, time in ISO 8601.

    Bytes stay as they are, but at a terminal.
    """
    style = replace(style, exact=not style.at_terminal)
    template = template.replace("\\t", "\t").replace("\\n", "\n").replace("\\0", "\0")
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--template") from None
    names = [name for _, name, _, _ in parts if name is not None]
    for name in names:
        if name not in _TEMPLATE_FIELDS:
            raise click.BadParameter(
                f"{{{name}}} is not one of {', '.join(_TEMPLATE_FIELDS)}", param_hint="--template"
            )
    numbers: dict[str, Callable[[Record], int]] = {
        "partition": lambda record: record.partition,
        "offset": lambda record: record.offset,
        "timestamp": lambda record: record.timestamp,
    }
    texts = dict(zip(_TEMPLATE_FIELDS, _text_getters(_TEMPLATE_FIELDS, style), strict=True)) | numbers
    wanted = [(name, texts[name]) for name in dict.fromkeys(names)]
    try:
        template.format(**{name: 0 if name in numbers else "" for name, _ in wanted})
    except (ValueError, LookupError) as error:
        raise click.BadParameter(str(error), param_hint="--template") from None
    ending = style.ending.decode(errors="surrogateescape")

    def render(rows: Rows) -> bytes:
        return "".join(
            [
                template.format(**{name: get(record) for name, get in wanted}) + ending
                for record in rows.records()
            ]
        ).encode(errors="surrogateescape")

    return render
