"""The names that someone may have meant who wrote an unknown one."""

from __future__ import annotations

from collections.abc import Iterable

from ottla_protocol.printable import printable


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The names most like ``name``, regardless of case, the likeliest first."""
    from difflib import get_close_matches

    by_folded = {each.casefold(): each for each in sorted(known, reverse=True)}
    return [by_folded[each] for each in get_close_matches(name.casefold(), by_folded, 3, 0.6)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean X?"`` with the names most like ``name``, or ``""``."""
    near = [printable(each) for each in near_names(name, known)]
    return f"; did you mean {' or '.join(near)}?" if near else ""
