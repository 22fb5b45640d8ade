"""Java's ``.properties`` files, as ``java.util.Properties`` reads them.

A *natural line* ends at LF, CR or CRLF. Blank lines, and lines whose first non-blank character is ``#`` or ``!``, are
skipped. A line that ends in an odd number of backslashes continues on the next one, without its leading blanks. A key
ends at the first unescaped ``=``, ``:`` or blank; blanks around that separator are dropped. ``\\t \\n \\r \\f`` and
``\\uXXXX`` are escapes; a backslash before any other character stands for that character. The last of several equal
keys wins. Blanks are space, tab and form feed.

Java reads a file's bytes as ISO-8859-1. Here a file that is valid UTF-8 is read as that, without a byte order mark, so
that it says what an editor shows. With ASCII and escapes alone, both are the same.
"""

from __future__ import annotations

import re
from typing import Final

_BLANKS: Final = " \t\f"
_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX: Final = re.compile(r"[0-9a-fA-F]{4}")


class PropertiesError(ValueError):
    """A text can't be read as properties; the message is one line with its name."""


def parse_properties(data: bytes | str, source: str = "configuration") -> dict[str, str]:
    """Parse a file's bytes, or a text, into keys and values, in the order of their first appearance.

    Raises PropertiesError: a ``\\uXXXX`` escape is malformed; the message has ``source`` and the line's number.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(data if isinstance(data, str) else _decoded(data)):
        key, value = _split(line)
        where = f"{source}: line {number}"
        found[_unescape(key, where)] = _unescape(value, where)
    return found


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Skip comments and join continued lines; each comes with the number of its first natural line."""
    lines: list[tuple[int, str]] = []
    pending: list[str] = []
    start = 0
    for number, natural in enumerate(_LINE_ENDS.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            start = number
        if _ends_in_odd_backslashes(line):
            if len(line) > 1:
                pending.append(line[:-1])
            continue
        lines.append((start, "".join((*pending, line))))
        pending = []
    return [*lines, (start, "".join(pending))] if pending else lines


def _ends_in_odd_backslashes(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Split a logical line into its key and value, both still escaped."""
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:position], rest


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            parts.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = _HEX.match(text, position)
            if digits is None:
                raise PropertiesError(
                    f"{where}: malformed \\uXXXX escape; write four hexadecimal digits after \\u"
                )
            parts.append(chr(int(digits.group(), 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    # Two escapes may be the halves of one character outside the basic plane.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
