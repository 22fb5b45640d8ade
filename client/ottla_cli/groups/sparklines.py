"""Numbers as a line of bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BARS: Final = "▁▂▃▄▅▆▇█"
SPARKS: Final = 30


def sparkline(values: Sequence[int]) -> str:
    """The last values as bars; the lowest bar is zero, the highest the largest of them."""
    shown = values[-SPARKS:]
    most = max(shown, default=0)
    return "".join(_BARS[0] if not most else _BARS[(len(_BARS) - 1) * value // most] for value in shown)
