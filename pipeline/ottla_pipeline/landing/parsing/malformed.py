"""The error of records that can't be parsed."""

from __future__ import annotations

from typing import Final

_SHOWN: Final = 60
"""Most characters of a value in an error."""


class Malformed(Exception):
    """Values can't be parsed together; for a single record, it is that record's error.

    ``placed``: the error says which column it is about.
    """

    def __init__(self, error: str, *, placed: bool = False) -> None:
        super().__init__(error)
        self.placed = placed


def short(text: str) -> str:
    """A value for an error: quoted, and cut."""
    return repr(text) if len(text) <= _SHOWN else repr(text[:_SHOWN])[:-1] + "…'"
