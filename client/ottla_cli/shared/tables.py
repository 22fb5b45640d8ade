"""Tables of plain text: columns, and values as they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla_protocol.printable import LONGEST_SHOWN, printable, quoted

_NAMES: Final = frozenset({"Client", "Group", "Member", "Transactional id"})
"""Titles of columns with names that may be empty, and are shown then."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. ``key`` is its name in JSON, by default the title in lower case with underscores.

    ``right`` aligns right; None does so if all values are numbers. ``show`` formats a value (JSON has the value
    itself); ``style`` returns rich's style for a value.
    """

    title: str
    key: str = ""
    right: bool | None = None
    show: Callable[[Any], str] | None = None
    style: Callable[[Any], str] | str | None = None

    @property
    def name(self) -> str:
        return self.key or self.title.lower().replace(" ", "_").replace("-", "_")

    def text(self, value: Any) -> str:
        """A value as text; None is ``-``."""
        if value is None:
            return "-"
        if self.show is not None:
            return printable(self.show(value))
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, (list, tuple, set, frozenset)):
            return ",".join(quoted(str(item)) for item in value) or "-"
        text = str(value)
        return quoted(text) if text or self.title in _NAMES else ""

    def is_right(self, values: Iterable[Any]) -> bool:
        if self.right is not None:
            return self.right
        known = [value for value in values if value is not None]
        return bool(known) and all(type(value) in (int, float) for value in known)

    def style_of(self, value: Any) -> str:
        return (self.style(value) if callable(self.style) else self.style) or ""


def plain_table(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> str:
    """A table as plain text: titles in capitals, columns two spaces apart, one line per row.

    A value longer than any topic's name moves the rest of its own line only.
    """
    texts = [[column.text(value) for column, value in zip(columns, row, strict=True)] for row in rows]
    titles = [column.title.upper() for column in columns]
    widths = [
        max(len(cell) for cell in cells if len(cell) <= LONGEST_SHOWN)
        for cells in zip(titles, *texts, strict=True)
    ]
    rights = [column.is_right(row[index] for row in rows) for index, column in enumerate(columns)]
    lines = (
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, rights, strict=True)
        ).rstrip()
        for line in (titles, *texts)
    )
    return "\n".join(lines) + "\n"
