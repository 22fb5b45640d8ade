"""Logs what a coordinator refuses because of a limit, without a line for each refusal."""

from __future__ import annotations

from math import inf
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger

_log = get_logger()

_SECONDS: Final = 60.0
"""The least time between two lines about the same limit."""


class Refusals:
    """Owned by the loop thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By what is refused: when a line was last written, and how many refusals there were since.
        self._last: dict[str, float] = {}
        self._since: dict[str, int] = {}

    def log(self, what: str, limit: int) -> None:
        """Log a refusal, once a minute at most; ``what`` names the key of the limit."""
        now = self._clock.monotonic()
        refused = self._since[what] = self._since.get(what, 0) + 1
        if now - self._last.get(what, -inf) >= _SECONDS:
            self._last[what] = now
            self._since[what] = 0
            _log.warning(what, limit=limit, refused=refused)
