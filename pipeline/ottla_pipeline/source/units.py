"""Parses option values as Spark does: whole numbers, sizes in bytes, times, booleans.

Source: Spark's ``JavaUtils.byteStringAs`` and ``timeStringAs``.
"""

from __future__ import annotations

import re
from typing import Final

from .errors import OptionError

_NUMBER: Final = re.compile(r"([0-9]+)\s*([a-z]*)")
_BYTES: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{
        letter + suffix: 1024**power
        for power, letter in enumerate("kmgtp", start=1)
        for suffix in ("", "b", "ib")
    },
}
_MILLISECONDS: Final = {
    "": 1.0,
    "us": 0.001,
    "ms": 1.0,
    "s": 1_000.0,
    "m": 60_000.0,
    "min": 60_000.0,
    "h": 3_600_000.0,
    "d": 86_400_000.0,
}


def whole(name: str, text: str, at_least: int) -> int:
    """A whole number. Raises OptionError."""
    try:
        value: int = int(text.strip())
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise OptionError(f"{name} is {text!r}; a whole number from {at_least} on is needed")
    return value


def truth(name: str, text: str) -> bool:
    """``true`` or ``false``. Raises OptionError."""
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise OptionError(f"{name} is {text!r}; it can be true or false")
    return value


def size(name: str, text: str) -> int:
    """Bytes: a number, or one with a unit of 1024 such as ``64m`` or ``1g``. Raises OptionError."""
    found = _NUMBER.fullmatch(text.strip().lower())
    value = 0 if found is None else int(found[1]) * _BYTES.get(found[2], 0)
    if not value:
        raise OptionError(f'{name} is {text!r}; bytes above 0 are needed, such as 1048576, "64m" or "1g"')
    return value


def seconds(name: str, text: str) -> float:
    """Seconds: of a number of milliseconds, or one with a unit such as ``30s`` or ``15m``. Raises OptionError."""
    found = _NUMBER.fullmatch(text.strip().lower())
    if found is None or found[2] not in _MILLISECONDS:
        raise OptionError(f'{name} is {text!r}; a time is needed, such as "500ms", "30s" or "15m"')
    return int(found[1]) * _MILLISECONDS[found[2]] / 1000


def one_of(name: str, text: str, allowed: tuple[str, ...]) -> str:
    """One of these words, case-insensitive. Raises OptionError."""
    value = text.strip().lower()
    if value not in allowed:
        raise OptionError(f"{name} is {text!r}; it can be {', '.join(allowed[:-1])} or {allowed[-1]}")
    return value
