"""The loops that parse flat JSON objects, compiled by numba. Imported only if worth it (see ``flat``).

They accept only what certainly means the same as to the exact reader (``objects``). Any other record, valid or not, is
odd, and left to others. No byte is read before its place is compared with the record's end.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ottla_pipeline.landing.parsing.compiling import (
    DATA,
    EDGES,
    INT32S,
    INT64S,
    OCTETS,
    address,
    compiled,
    copy,
    inlined,
    lowest_bit,
    merged,
    octet,
    types,
    word,
)
from ottla_pipeline.landing.parsing.tokens import (
    HIGH,
    code_point,
    pass_number,
    pass_space,
    pass_text,
    pass_value,
    pass_word,
    simple_escape,
)

WHOLE: Final = 0
REAL: Final = 1
FLOAT: Final = 2
"""As REAL, with 32 bits."""
TEXT: Final = 3
FLAG: Final = 4
STAMP: Final = 5
"""Microseconds; the text may have an offset."""
LOCAL: Final = 6
"""Microseconds; the text has no offset."""
DAY: Final = 7

PLAIN: Final = 1
"""A value's mark: the cell has the value. 0 means no value."""
LATER: Final = 2
"""A value's mark: a text has escapes; a number is left to Arrow's cast, and the cell has its place."""

_POWERS = np.array([float(f"1e{power}") for power in range(23)])
_EXACT: Final = 2**53
_ZEROS: Final = types.uint64(0x3030303030303030)
_TENS: Final = types.uint64(0x7676767676767676)
"""Added to a byte, it sets the highest bit if the byte is ten or more."""
_OCTET_TABLE = types.Array(types.uint8, 2, "C")
_PATTERNS = types.Array(types.uint64, 2, "C")
_CELLS = types.Array(types.int64, 2, "C")
_REALS = types.Array(types.float64, 2, "C")


@merged
def _whole(data: int, at: int, end: int) -> Any:
    """An integer, and the place after it: -1 if there is none, or it has more than 63 bits."""
    negative = octet(data, at) == 45
    if negative:
        at += 1
    begin = at
    if at + 8 <= end:
        eight = word(data, at) ^ _ZEROS
        digits = lowest_bit(((eight + _TENS) | eight) & HIGH) >> 3
        if digits < 8:
            if digits == 0 or at + digits > end or (digits > 1 and octet(data, at) == 48):
                return types.int64(0), types.int64(-1)
            # Padded with zeros in front: pairs, then fours, then all eight digits become a number.
            eight <<= types.uint64(64 - 8 * digits)
            eight = (eight * types.uint64(2561)) >> types.uint64(8)
            eight = ((eight & types.uint64(0x00FF00FF00FF00FF)) * types.uint64(6553601)) >> types.uint64(16)
            eight = (
                (eight & types.uint64(0x0000FFFF0000FFFF)) * types.uint64(42949672960001)
            ) >> types.uint64(32)
            small = types.int64(eight)
            return -small if negative else small, types.int64(at + digits)
    number = types.uint64(0)
    while at < end:
        digit = types.uint64(octet(data, at)) - types.uint64(48)
        if digit > types.uint64(9):
            break
        number = number * types.uint64(10) + digit
        at += 1
    digits = at - begin
    if digits == 0 or digits > 19 or (digits > 1 and octet(data, begin) == 48):
        return types.int64(0), types.int64(-1)
    if number > types.uint64(0x7FFFFFFFFFFFFFFF):
        return types.int64(0), types.int64(-1)
    if negative:
        return -types.int64(number), types.int64(at)
    return types.int64(number), types.int64(at)


@merged
def _real(data: int, at: int, end: int) -> Any:
    """A number that double arithmetic computes exactly, and whether this is one.

    Integers up to 2**53 and powers up to 10**22 are exact doubles, so a single rounding gives the nearest (Clinger).
    There is a JSON number at ``at``.
    """
    negative = octet(data, at) == 45
    if negative:
        at += 1
    mantissa = types.uint64(0)
    digits = types.int64(0)
    power = types.int64(0)
    while at < end and 48 <= octet(data, at) <= 57:
        mantissa = mantissa * types.uint64(10) + types.uint64(octet(data, at) - 48)
        digits += 1
        at += 1
    if at < end and octet(data, at) == 46:
        at += 1
        while at < end and 48 <= octet(data, at) <= 57:
            mantissa = mantissa * types.uint64(10) + types.uint64(octet(data, at) - 48)
            digits += 1
            power -= 1
            at += 1
    if at < end and (octet(data, at) == 101 or octet(data, at) == 69):
        at += 1
        below = octet(data, at) == 45
        if below or octet(data, at) == 43:
            at += 1
        exponent = types.int64(0)
        while at < end and 48 <= octet(data, at) <= 57:
            exponent = exponent * 10 + types.int64(octet(data, at) - 48)
            at += 1
        power += -exponent if below else exponent
    if digits > 19 or mantissa > types.uint64(_EXACT) or power < -22 or power > 22:
        return 0.0, False
    number = types.float64(types.int64(mantissa))
    number = number / _POWERS[-power] if power < 0 else number * _POWERS[power]
    return -number if negative else number, True


@merged
def _two(data: int, at: int) -> Any:
    """The number of two digits; far below 0 if they are none."""
    high = octet(data, at) - 48
    low = octet(data, at + 1) - 48
    good = (high >= 0) & (high <= 9) & (low >= 0) & (low <= 9)
    return high * 10 + low if good else types.int64(-100_000)


@merged
def _day(data: int, at: int) -> Any:
    """Days since 1970 of the ten bytes YYYY-MM-DD, and whether they are valid."""
    year = _two(data, at) * 100 + _two(data, at + 2)
    month = _two(data, at + 5)
    day = _two(data, at + 8)
    if (
        year < 0
        or octet(data, at + 4) != 45
        or octet(data, at + 7) != 45
        or month < 1
        or month > 12
        or day < 1
    ):
        return types.int64(0), False
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    longest = 28 + leap if month == 2 else 30 + ((month + (month >> 3)) & 1)
    if day > longest:
        return types.int64(0), False
    # Years begin in March, so that February is last; 400 years have 146,097 days.
    if month <= 2:
        year -= 1
        month += 12
    of_year = (153 * (month - 3) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + of_year - 719_468, True


@merged
def _stamp(data: int, at: int, end: int, offsets: bool) -> Any:
    """Microseconds since 1970 of the text at ``at``, and the place after its closing quote: -1 if it is odd."""
    none = (types.int64(0), types.int64(-1))
    if at + 20 > end:
        return none
    days, good = _day(data, at)
    hour = _two(data, at + 11)
    minute = _two(data, at + 14)
    second = _two(data, at + 17)
    if (
        not good
        or (octet(data, at + 10) != 84 and octet(data, at + 10) != 32)
        or octet(data, at + 13) != 58
        or octet(data, at + 16) != 58
    ):
        return none
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59):
        return none
    at += 19
    micros = types.int64(0)
    if octet(data, at) == 46:
        at += 1
        unit = types.int64(100_000)
        begin = at
        while at < end and unit > 0 and 48 <= octet(data, at) <= 57:
            micros += types.int64(octet(data, at) - 48) * unit
            unit //= 10
            at += 1
        # Digits of a nanosecond are cut off, as they are for Spark.
        while at < end and at < begin + 9 and 48 <= octet(data, at) <= 57:
            at += 1
        if at == begin or at >= end:
            return none
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    if octet(data, at) != 34:
        if not offsets:
            return none
        if octet(data, at) == 90:
            at += 1
        elif (octet(data, at) == 43 or octet(data, at) == 45) and at + 6 <= end and octet(data, at + 3) == 58:
            hour = _two(data, at + 1)
            minute = _two(data, at + 4)
            if not (0 <= hour <= 23 and 0 <= minute <= 59):
                return none
            ahead = (hour * 60 + minute) * 60
            seconds += ahead if octet(data, at) == 45 else -ahead
            at += 6
        else:
            return none
        if at >= end or octet(data, at) != 34:
            return none
    return seconds * 1_000_000 + micros, types.int64(at + 1)


@inlined
def _behind_name(data: int, at: int, end: int, names: Any, edges: Any, column: int) -> Any:
    """The place after this column's name and its quote; -1 if the name is another's."""
    start = types.int64(edges[column])
    behind = at + types.int64(edges[column + 1]) - start
    if behind >= end or octet(data, behind) != 34:
        return types.int64(-1)
    for place in range(at, behind):
        if octet(data, place) != names[start + place - at]:
            return types.int64(-1)
    return types.int64(behind + 1)


@merged
def _behind_expected(data: int, at: int, end: int, patterns: Any, sizes: Any, column: int) -> Any:
    """The place after this column's name, its quote and its colon; -1 if there is anything else.

    ``patterns`` has the names as words at even places, and masks of their valid bytes at odd places.
    """
    at_column = types.uint64(column)
    behind = at + sizes[at_column]
    if at + ((sizes[at_column] + 7) & ~7) > end:
        return types.int64(-1)
    differs = types.uint64(0)
    place = types.uint64(0)
    while at < behind:
        wanted = patterns[at_column, place]
        differs |= (word(data, at) ^ wanted) & patterns[at_column, place + types.uint64(1)]
        place += types.uint64(2)
        at += 8
    return types.int64(behind) if differs == 0 else types.int64(-1)


@merged
def _value(
    data: int, at: int, end: int, kind: int, forbidden: int, column: int, row: int, cells: Any, reals: Any
) -> Any:
    """Put a value into its cell; returns the place after it (-1 if it is odd), and its mark."""
    odd = (types.int64(-1), PLAIN)
    if kind == WHOLE:
        number, at = _whole(data, at, end)
        cells[column, row] = number
        return at, PLAIN
    if kind in (REAL, FLOAT):
        behind = pass_number(data, at, end)
        if behind < 0:
            return odd
        real, good = _real(data, at, behind)
        if kind == FLOAT and good:
            # Rounding twice is wrong only for numbers halfway between two floats.
            reals[column, row] = real
            size = abs(real)
            halfway = (cells[column, row] & 0x1FFFFFFF) == 0x10000000
            good = not halfway and (size == 0.0 or 1e-37 < size < 1e38)
        if good:
            reals[column, row] = real
            return behind, PLAIN
        cells[column, row] = (at << 32) | (behind - at)
        return behind, LATER
    if kind == FLAG:
        behind = pass_word(data, at, end)
        cells[column, row] = octet(data, at) == 116
        return behind, PLAIN
    if octet(data, at) != 34:
        return odd
    at += 1
    if kind == TEXT:
        behind, size = pass_text(data, at, end, forbidden)
        cells[column, row] = (at << 32) | size
        return behind, PLAIN if size == behind - 1 - at else LATER
    if kind == DAY:
        if at + 11 > end or octet(data, at + 10) != 34:
            return odd
        number, good = _day(data, at)
        cells[column, row] = number
        return (types.int64(at + 11), PLAIN) if good else odd
    number, at = _stamp(data, at, end, kind == STAMP)
    cells[column, row] = number
    return at, PLAIN


@compiled(
    *(DATA, EDGES, DATA, EDGES, _PATTERNS, INT64S),
    *(INT64S, INT64S, INT64S, types.int64, types.boolean),
    *(INT64S, INT64S, _CELLS, _REALS, _OCTET_TABLE, OCTETS),
)
def take_apart(
    octets: Any,
    edges: Any,
    names: Any,
    name_edges: Any,
    patterns: Any,
    pattern_sizes: Any,
    kinds: Any,
    least: Any,
    greatest: Any,
    forbidden: int,
    known_alone: bool,
    follow: Any,
    seen: Any,
    cells: Any,
    reals: Any,
    marks: Any,
    odd: Any,
) -> int:
    """Parse the records between ``edges`` into ``cells``, one column each; returns the number of rows.

    Bytes with the bits of ``forbidden`` are odd: 128 if ``octets`` may not be UTF-8, otherwise 0. With ``known_alone``,
    records that have fields without a column are odd, too. ``odd`` becomes 1 for odd records, which get no row.

    ``follow`` remembers which column came after which, with the first one in its last place; ``seen``, -1 at first, is
    the record in which a column was last found. A cell has an integer, a REAL or FLOAT (in ``reals``, the same memory),
    or a TEXT's place in the upper half and its size in the lower. ``marks`` are 0 at first.
    """
    # One long function, since the compiler makes it half as fast once it is split at its parts.
    data = address(octets)
    columns = types.int64(kinds.shape[0])
    row = types.int64(0)
    for record in range(edges.shape[0] - 1):
        at = types.int64(edges[record])
        end = types.int64(edges[record + 1])
        good = False
        before = columns
        at = pass_space(data, at, end)
        if at < end and octet(data, at) == 123:
            at = pass_space(data, at + 1, end)
            if at < end and octet(data, at) == 125:
                good = True
                at += 1
        else:
            at = end
        while not good and at < end and octet(data, at) == 34:
            at += 1
            column = follow[before]
            behind = _behind_expected(data, at, end, patterns, pattern_sizes, column)
            if behind >= 0:
                at = pass_space(data, behind, end)
            else:
                for turn in range(columns):
                    # The expected name may have white space, or be too near the end to compare words.
                    other = column + turn if column + turn < columns else column + turn - columns
                    behind = _behind_name(data, at, end, names, name_edges, other)
                    if behind >= 0:
                        column = other
                        follow[before] = column
                        break
                else:
                    column = types.int64(-1)
                    start = at
                    behind, size = pass_text(data, at, end, forbidden)
                    # A name with escapes may be that of a column.
                    if behind < 0 or known_alone or size != behind - 1 - start:
                        break
                at = pass_space(data, behind, end)
                if at >= end or octet(data, at) != 58:
                    break
                at = pass_space(data, at + 1, end)
            if at >= end:
                break
            if column < 0:
                at = pass_value(data, at, end, forbidden)
                if at < 0:
                    break
            else:
                if seen[column] == record:
                    break
                seen[column] = record
                before = column
                if octet(data, at) == 110:
                    at = pass_word(data, at, end)
                    if at < 0:
                        break
                else:
                    kind = kinds[column]
                    at, mark = _value(data, at, end, kind, forbidden, column, row, cells, reals)
                    if at < 0:
                        break
                    if kind == WHOLE and not least[column] <= cells[column, row] <= greatest[column]:
                        break
                    marks[column, row] = mark
            at = pass_space(data, at, end)
            if at >= end:
                break
            if octet(data, at) == 44:
                at = pass_space(data, at + 1, end)
            else:
                good = octet(data, at) == 125
                at += 1
                break
        if good and pass_space(data, at, end) == end:
            row += 1
        else:
            odd[record] = 1
            for column in range(columns):
                marks[column, row] = 0
    return int(row)


@inlined
def _put(out: Any, at: int, code: Any) -> Any:
    """Write a code point as UTF-8; returns the place after it."""
    if code < 0x80:
        out[at] = code
        return types.int64(at + 1)
    if code < 0x800:
        out[at] = 0xC0 | (code >> 6)
        out[at + 1] = 0x80 | (code & 0x3F)
        return types.int64(at + 2)
    if code < 0x10000:
        out[at] = 0xE0 | (code >> 12)
        out[at + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[at + 2] = 0x80 | (code & 0x3F)
        return types.int64(at + 3)
    out[at] = 0xF0 | (code >> 18)
    out[at + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[at + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[at + 3] = 0x80 | (code & 0x3F)
    return types.int64(at + 4)


@compiled(DATA, INT64S, OCTETS, INT32S, OCTETS)
def gather(octets: Any, cells: Any, marks: Any, edges: Any, out: Any) -> None:
    """Copy the texts that :func:`take_apart` has found into ``out``, which has room for them."""
    size = types.int64(0)
    data = address(octets)
    end = types.int64(octets.shape[0])
    edges[0] = 0
    for row in range(marks.shape[0]):
        if marks[row]:
            start = cells[row] >> 32
            behind = size + (cells[row] & 0x7FFFFFFF)
            if marks[row] == PLAIN:
                copy(out, size, octets, start, behind - size)
            else:
                while size < behind:
                    if octet(data, start) != 92:
                        out[size] = octet(data, start)
                        size += 1
                        start += 1
                    elif octet(data, start + 1) == 117:
                        code, start = code_point(data, start + 2, end)
                        size = _put(out, size, code)
                    else:
                        out[size] = simple_escape(octet(data, start + 1))
                        size += 1
                        start += 2
            size = behind
        edges[row + 1] = size
