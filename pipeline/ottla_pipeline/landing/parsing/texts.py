"""Numbers and times in texts, read exactly: the definition that faster readers are held to.

Times are ISO 8601, dates ``YYYY-MM-DD``. A time may have nine digits of a second; those after the sixth are cut off, as
Spark does. Floating point takes the nearest value. Nothing else is rounded: what doesn't fit is :class:`Malformed`.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from typing import Final

import pyarrow as pa

from ottla_pipeline.landing.parsing.malformed import Malformed, short
from ottla_pipeline.landing.schema import type_name

_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_NUMBER: Final = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE: Final = re.compile(r"-?[0-9]+")
_NAMED: Final = {"nan", "inf", "infinity"}
_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
_LONGEST: Final = 60
"""More characters than any number of 128 bits has: a longer one is no whole number that fits."""
_EXACT: Final = decimal.Context(
    prec=100, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow, decimal.Subnormal]
)


def whole(text: str, kind: pa.DataType) -> int:
    """An integer of ``kind``, from its digits alone."""
    if _WHOLE.fullmatch(text):
        number = int(text) if len(text) <= _LONGEST else 1 << 200
        least = -(1 << (kind.bit_width - 1))
        if least <= number < -least:
            return number
    raise _unfit(text, kind)


def real(text: str, kind: pa.DataType) -> float:
    """The nearest floating point number of ``kind``."""
    if text.lstrip("+-").lower() in _NAMED:
        return float(text)
    if _NUMBER.fullmatch(text):
        # By way of a double, a float would be rounded twice.
        found = float(text) if kind == pa.float64() else pa.scalar(text).cast(kind).as_py()
        if math.isfinite(found):
            return float(found)
    raise _unfit(text, kind)


def number(text: str, kind: pa.DataType) -> decimal.Decimal:
    """A decimal of ``kind``."""
    if _NUMBER.fullmatch(text):
        try:
            found = decimal.Decimal(text)
            if not found:
                return decimal.Decimal(0)
            if found.adjusted() < kind.precision - kind.scale:
                return found.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_EXACT)
        except ArithmeticError:
            pass
    raise _unfit(text, kind)


def day(text: str) -> int:
    """Days since 1970."""
    if len(text) != 10 or _TIME.fullmatch(text) is None:
        raise _unfit(text, pa.date32())
    return _days(text, pa.date32())


def instant(text: str, kind: pa.DataType, *, offset: bool | None = None) -> int:
    """Microseconds since 1970. ``offset``: whether the text has to have one; None: it may, and is UTC without."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise _unfit(text, kind)
    date, hour, minute, second, fraction, zone = found.groups()
    if offset is not None and offset is not (zone is not None):
        has = "with no offset" if offset else "with an offset"
        other = "TIMESTAMP_NTZ takes times without one" if offset else "TIMESTAMP takes times with one"
        raise Malformed(f"{short(text)} is a time {has}; {other}")
    clock = [int(one or 0) for one in (hour, minute, second)]
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        raise _unfit(text, kind)
    seconds = ((_days(date, kind) * 24 + clock[0]) * 60 + clock[1]) * 60 + clock[2]
    if zone not in (None, "Z"):
        hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0
        if hours > 23 or minutes > 59:
            raise _unfit(text, kind)
        seconds -= (hours * 60 + minutes) * 60 * (-1 if zone[0] == "-" else 1)
    return seconds * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))


def _days(date: str, kind: pa.DataType) -> int:
    year, month, of_month = int(date[:4]), int(date[5:7]), int(date[8:10])
    try:
        # Python's years begin with 1; 400 years have 146,097 days.
        return dt.date(year or 400, month, of_month).toordinal() - _EPOCH - (0 if year else 146_097)
    except ValueError:
        raise _unfit(date, kind) from None


def _unfit(text: str, kind: pa.DataType) -> Malformed:
    return Malformed(f"{short(text)} is no {type_name(kind)}")
