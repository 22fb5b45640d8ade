"""The names that someone may have meant who wrote an unknown one."""

from __future__ import annotations

from collections.abc import Iterable

from ottla_protocol.printable import printable


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The names most like ``name``, or beginning with it, regardless of case; at most three, the likeliest first."""
    from difflib import get_close_matches

    folded = name.casefold()
    by_folded = {each.casefold(): each for each in sorted(known, reverse=True)}
    longer = sorted(each for each in by_folded if folded and each.startswith(folded))
    near = dict.fromkeys([*get_close_matches(folded, by_folded, 3, 0.6), *longer])
    return [by_folded[each] for each in near][:3]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean X?"`` with the names most like ``name``, or ``""``."""
    near = [printable(each) for each in near_names(name, known)]
    return f"; did you mean {' or '.join(near)}?" if near else ""
