"""JSON as its author wrote it: indented or cut out, every name and number keeps its text.

A value that is decoded and encoded again is another one: 10.10 becomes 10.1, 1e400 infinity, a large decimal is
rounded, and of names that stand twice one is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{}:,]|[^][{}:,"\s]++')


class Number(str):
    """A number's text."""

    __slots__ = ()


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name}")


def _decoder_with(number: type[str]) -> json.JSONDecoder:
    return json.JSONDecoder(parse_int=number, parse_float=number, parse_constant=_refuse)


_decoder: Final = _decoder_with(str)
decode: Final = _decoder.decode
"""A document whose numbers are their texts. Raises ValueError, RecursionError."""
decode_numbers: Final = _decoder_with(Number).decode
"""The same, with numbers that aren't mistaken for texts; it takes longer."""


def indented(text: str, most: int) -> str:
    """A document with one item on each line, not much further than ``most`` characters.

    Raises ValueError, RecursionError for what isn't JSON.
    """
    decode(text)
    parts: list[str] = []
    left = most
    for each in _pieces(text):
        parts.append(each)
        left -= len(each)
        if left < 0:
            break
    return "".join(parts)


def _pieces(text: str) -> Iterator[str]:
    depth = 0
    tokens = (match[0] for match in _TOKEN.finditer(text))
    last = ""
    for token in tokens:
        if token in "]}":
            depth -= 1
            if last not in "[{":
                yield "\n" + "  " * depth
        elif last and last in "[{,":
            yield "\n" + "  " * depth
        yield token
        if token == ":":
            yield " "
        elif token in "[{":
            depth += 1
        last = token


def source_of(text: str, path: str) -> str | None:
    """The text of a field, by its name or by a path like ``user.id``; None if a document that is JSON lacks it.

    Of a name that stands twice, the last one counts.
    """
    start = _skip(text, 0)
    found = _member(text, start, path)
    if found is None and "." in path:
        place: tuple[int, int] | None = (start, len(text))
        for name in path.split("."):
            place = None if place is None else _member(text, place[0], name)
        found = place
    return None if found is None else text[found[0] : found[1]]


def _member(text: str, at: int, wanted: str) -> tuple[int, int] | None:
    """Where the value of a name of the object at ``at`` begins and ends."""
    if text[at] != "{":
        return None
    found = None
    while text[at] != "}":
        at = _skip(text, at + 1)  # behind the brace or a comma
        if text[at] == "}":
            break
        name, at = _decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, end = _decoder.raw_decode(text, start)
        if name == wanted:
            found = start, end
        at = _skip(text, end)
    return found


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]
