"""The names that someone may have meant who wrote an unknown one."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from typing import Final

from ottla_protocol.printable import shown_name

_COMPARED: Final = 500
"""Of very many names, so many on either side of the unknown one are compared: if all are alike, that takes 0.1 s."""


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The names most like ``name``, or beginning with it, regardless of case; at most three, the likeliest first."""
    from difflib import get_close_matches

    folded = name.casefold()
    by_folded: dict[str, list[str]] = {}
    for each in sorted(known):
        by_folded.setdefault(each.casefold(), []).append(each)
    longer = sorted(each for each in by_folded if folded and each.startswith(folded))
    ordered = sorted(by_folded)
    at = bisect(ordered, folded)
    compared = ordered[max(0, at - _COMPARED) : at + _COMPARED]
    near = dict.fromkeys([*get_close_matches(folded, compared, 3, 0.6), *longer])
    return [each for group in near for each in by_folded[group]][:3]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean X?"`` with the names most like ``name``, or ``""``."""
    near = [shown_name(each) for each in near_names(name, known)]
    return f"; did you mean {' or '.join(near)}?" if near else ""
