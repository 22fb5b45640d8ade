"""Parsing and formatting of times, in milliseconds since 1970 (UTC), and durations, in milliseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from time import time

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_MILLISECONDS = re.compile(r"-?\d+(\.0)?", re.ASCII)
_SIZE = re.compile(r"(\d+)\s?([kmgt])(?:i?b)?", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAST_ALL = 1 << 62  # what a producer's records may have


def now_ms() -> int:
    return int(time() * 1000)


def parse_time(text: str) -> int:
    """``2026-05-17``, ``2026-05-17T14:30``, ``…+02:00``, ``…Z``, or milliseconds; without a zone, local time.

    Raises ValueError, whose message says what is valid.
    """
    stripped = text.strip()
    try:
        if _MILLISECONDS.fullmatch(stripped) and len(stripped) != 8:  # eight digits: a date, 20260517
            moment = int(stripped.removesuffix(".0"))
        else:
            since = datetime.fromisoformat(stripped).astimezone(UTC) - _EPOCH
            moment = round(since / timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text[:40]!r} is not a time; use 2026-05-17T14:30:00, with Z or +02:00 for a zone, or milliseconds"
        ) from None
    if not 0 <= moment < _PAST_ALL:
        raise ValueError(f"{text[:40]!r}: timestamps are from 1970 on, and below 2^62 milliseconds")
    return moment


def parse_duration(text: str) -> int:
    """Milliseconds of ``90s``, ``15m``, ``1h30m``, ``2d``. Raises ValueError."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; use 90s, 15m, 1h30m or 2d")
    return round(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))


def unit_hint(configs: Mapping[str, object]) -> str:
    """What to give for the first config whose value has a unit, such as ``7d`` or ``1MiB``; ``""`` if none has."""
    for name, value in configs.items():
        text = str(value).strip()
        if name.endswith(".ms") and _DURATION.fullmatch(text):
            return f"{name} is a number of milliseconds: for {text} give {parse_duration(text)}"
        if name.endswith(".bytes") and (size := _SIZE.fullmatch(text)):
            number = int(size[1]) * 1024 ** (1 + "kmgt".index(size[2].lower()))
            return f"{name} is a number of bytes: for {text} give {number}"
    return ""


def show_time(ms: int | None) -> str:
    """``2026-05-17T14:30:00.000Z``; empty for a record without a timestamp (-1)."""
    if ms is None or ms < 0:
        return ""
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:  # an impossible timestamp, which any producer may send
        return str(ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
