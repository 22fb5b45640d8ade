"""Finds where JSON texts, numbers and values end, for the loops in ``kernels``.

All functions take the address of the data, a place in it, and the record's end. They return the place -1 for odd input.
Whatever they accept is valid for RapidJSON as Arrow uses it; they may reject valid input.

Numba caches a loop with its callees, and checks only the loop's own file: touch ``kernels`` after a change here.
"""

from __future__ import annotations

from typing import Any, Final

from ottla_pipeline.landing.parsing.compiling import inlined, lowest_bit, merged, octet, types, word

# The same bits in all eight bytes of a word.
HIGH: Final = types.uint64(0x8080808080808080)
_ONES: Final = types.uint64(0x0101010101010101)
_SPACES: Final = types.uint64(0x2020202020202020)
_QUOTES: Final = types.uint64(0x2222222222222222)
_BACKSLASHES: Final = types.uint64(0x5C5C5C5C5C5C5C5C)
_LONGEST: Final = 40
"""Most bytes of a number before its exponent, which has at most two digits: far from a double's overflow."""
_DEEPEST: Final = 60


@merged
def pass_space(data: int, at: int, end: int) -> int:
    """The place of the next byte that isn't white space."""
    while at < end:
        byte = octet(data, at)
        if byte > 32 or (byte != 32 and byte != 10 and byte != 13 and byte != 9):
            break
        at += 1
    return at


@inlined
def hex(data: int, at: int, end: int) -> Any:
    """The number of four hexadecimal digits; -1 if they are none."""
    number = types.int64(0)
    if at + 4 > end:
        return types.int64(-1)
    for place in range(at, at + 4):
        byte = octet(data, place)
        if 48 <= byte <= 57:
            number = number * 16 + byte - 48
        elif 65 <= byte <= 70 or 97 <= byte <= 102:
            number = number * 16 + (byte & 7) + 9
        else:
            return types.int64(-1)
    return number


@inlined
def code_point(data: int, at: int, end: int) -> Any:
    """The code point of the escape's digits at ``at``, and the place after it: -1 if invalid, such as half a pair."""
    number = hex(data, at, end)
    at += 4
    if number < 0 or 0xDC00 <= number <= 0xDFFF:
        return number, types.int64(-1)
    if number < 0xD800 or number > 0xDFFF:
        return number, types.int64(at)
    if at + 2 > end or octet(data, at) != 92 or octet(data, at + 1) != 117:
        return number, types.int64(-1)
    low = hex(data, at + 2, end)
    if low < 0xDC00 or low > 0xDFFF:
        return number, types.int64(-1)
    return 0x10000 + ((number - 0xD800) << 10) + (low - 0xDC00), types.int64(at + 6)


@inlined
def simple_escape(byte: Any) -> Any:
    r"""The byte of an escape such as \n; 0 if it is none."""
    if byte == 34 or byte == 92 or byte == 47:
        return types.uint8(byte)
    if byte == 98:
        return types.uint8(8)
    if byte == 102:
        return types.uint8(12)
    if byte == 110:
        return types.uint8(10)
    if byte == 114:
        return types.uint8(13)
    if byte == 116:
        return types.uint8(9)
    return types.uint8(0)


@merged
def pass_text(data: int, at: int, end: int, forbidden: int) -> Any:
    """The place after the text that begins at ``at`` (-1 if it is odd), and its bytes without escapes."""
    spared = types.int64(0)
    begin = at
    while at < end:
        if at + 8 <= end:
            eight = word(data, at)
            # The lowest byte that borrows is a real match; higher ones may not be.
            quote = ((eight ^ _QUOTES) - _ONES) & ~(eight ^ _QUOTES)
            backslash = ((eight ^ _BACKSLASHES) - _ONES) & ~(eight ^ _BACKSLASHES)
            control = (eight - _SPACES) & ~eight
            found = (quote | backslash | control) & HIGH | (eight & (types.uint64(forbidden) * _ONES))
            at += lowest_bit(found) >> 3
            if found == 0:
                continue
            if at >= end:
                break
        byte = octet(data, at)
        if byte == 34:
            return types.int64(at + 1), at - begin - spared
        if byte < 32 or byte & forbidden:
            break
        at += 1
        if byte == 92:
            if at >= end:
                break
            if octet(data, at) == 117:
                escape = at - 1
                code, at = code_point(data, at + 1, end)
                if at < 0:
                    break
                written = 1 + (code > 0x7F) + (code > 0x7FF) + (code > 0xFFFF)
                spared += at - escape - written
            elif simple_escape(octet(data, at)) == 0:
                break
            else:
                at += 1
                spared += 1
    return types.int64(-1), types.int64(0)


@inlined
def pass_digits(data: int, at: int, end: int) -> int:
    while at < end and 48 <= octet(data, at) <= 57:
        at += 1
    return at


@inlined
def pass_number(data: int, at: int, end: int) -> Any:
    """The place after a number; -1 if there is none, or it is close to a double's limits."""
    if at < end and octet(data, at) == 45:
        at += 1
    begin = first = at
    at = pass_digits(data, at, end)
    if at == begin or (octet(data, begin) == 48 and at > begin + 1):
        return types.int64(-1)
    if at < end and octet(data, at) == 46:
        begin = at + 1
        at = pass_digits(data, begin, end)
        if at == begin:
            return types.int64(-1)
    if at - first > _LONGEST:
        return types.int64(-1)
    if at < end and (octet(data, at) == 101 or octet(data, at) == 69):
        at += 1
        if at < end and (octet(data, at) == 43 or octet(data, at) == 45):
            at += 1
        begin = at
        at = pass_digits(data, at, end)
        if at == begin or at - begin > 2:
            return types.int64(-1)
    return types.int64(at)


@inlined
def pass_word(data: int, at: int, end: int) -> Any:
    """The place after ``true``, ``false`` or ``null``; -1 if it is none of them."""
    if at + 4 <= end:
        if (
            octet(data, at) == 116
            and octet(data, at + 1) == 114
            and octet(data, at + 2) == 117
            and octet(data, at + 3) == 101
        ):
            return types.int64(at + 4)
        if (
            octet(data, at) == 110
            and octet(data, at + 1) == 117
            and octet(data, at + 2) == 108
            and octet(data, at + 3) == 108
        ):
            return types.int64(at + 4)
        if (
            octet(data, at) == 102
            and octet(data, at + 1) == 97
            and octet(data, at + 2) == 108
            and octet(data, at + 3) == 115
        ):
            return types.int64(at + 5 if at + 5 <= end and octet(data, at + 4) == 101 else -1)
    return types.int64(-1)


@inlined
def pass_name(data: int, at: int, end: int, forbidden: int) -> Any:
    """The place of the value after a name and its colon; -1 if they are missing."""
    at = pass_space(data, at, end)
    if at >= end or octet(data, at) != 34:
        return types.int64(-1)
    at, _ = pass_text(data, at + 1, end, forbidden)
    if at < 0:
        return types.int64(-1)
    at = pass_space(data, at, end)
    if at >= end or octet(data, at) != 58:
        return types.int64(-1)
    return types.int64(pass_space(data, at + 1, end))


@inlined
def pass_value(data: int, at: int, end: int, forbidden: int) -> Any:
    """The place after a value of any kind, which is skipped; -1 if it is odd."""
    depth = types.int64(0)
    # One bit per level, 1 for an object.
    objects = types.uint64(0)
    while at < end:
        first = octet(data, at)
        empty = False
        if first == 123 or first == 91:
            depth += 1
            if depth > _DEEPEST:
                break
            objects = (objects << types.uint64(1)) | types.uint64(first == 123)
            inside = pass_space(data, at + 1, end)
            if inside < end and octet(data, inside) == first + 2:
                empty = True
                at = inside
            elif first == 123:
                at = pass_name(data, inside, end, forbidden)
                if at < 0:
                    break
                continue
            else:
                at = inside
                continue
        elif first == 34:
            at, _ = pass_text(data, at + 1, end, forbidden)
        elif first == 45 or 48 <= first <= 57:
            at = pass_number(data, at, end)
        else:
            at = pass_word(data, at, end)
        if at < 0:
            break
        # After a value, its container ends or continues.
        good = True
        while depth > 0:
            if not empty:
                at = pass_space(data, at, end)
            empty = False
            good = False
            if at >= end:
                break
            if octet(data, at) == 44:
                if objects & types.uint64(1):
                    at = pass_name(data, at + 1, end, forbidden)
                    good = at >= 0
                else:
                    at = pass_space(data, at + 1, end)
                    good = True
                break
            if octet(data, at) != (125 if objects & types.uint64(1) else 93):
                break
            good = True
            at += 1
            depth -= 1
            objects >>= types.uint64(1)
        if not good:
            break
        if depth == 0:
            return types.int64(at)
    return types.int64(-1)
