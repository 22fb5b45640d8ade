"""The bound on the bytes of answers that clients don't take."""

from __future__ import annotations

from typing import Final, Protocol

from ottla_broker.clock import Clock

SMALL_ANSWERS: Final = 16 * 1024
"""Up to this many bytes of a connection aren't counted."""
LOOK_SECONDS: Final = 1.0
LOOK_BYTES: Final = 256 * 1024
"""While memory is short, a connection may be closed that takes fewer bytes than this in ``LOOK_SECONDS``."""


class Holder(Protocol):
    """A connection with answers that its client hasn't taken."""

    @property
    def taken(self) -> int:
        """The bytes of answers that the client has taken so far."""
        ...

    def close(self, reason: str | None) -> None:
        """Close the connection, which drops its answers."""
        ...


class AnswerMemory:
    """Counts the bytes of answers in memory that wait for their clients. Owned by the loop thread.

    An answer is never held back, and slices of files take no memory. While more than the bound is counted, the
    connections that take the fewest bytes are closed: clients that ask for much and read nothing must not use up the
    memory of the others. Beyond twice the bound, those that hold the most are closed at once, however fast they read.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        self.limit = limit
        self.used = 0
        self._clock = clock
        self._held: dict[Holder, int] = {}
        # While memory is short: what each had taken at the last look.
        self._seen: dict[Holder, int] | None = None
        self._is_urgent = False

    def hold(self, owner: Holder, size: int) -> None:
        """``owner`` holds ``size`` bytes now."""
        self.used += size - self._held.get(owner, 0)
        if size:
            self._held[owner] = size
        else:
            self._held.pop(owner, None)
        if self.used > self.limit:
            if self._seen is None:
                self._look()
            if self.used > 2 * self.limit and not self._is_urgent:
                self._is_urgent = True
                self._clock.call_later(0, self._close_largest)

    def _look(self) -> None:
        self._seen = {each: each.taken for each in self._held}
        self._clock.call_later(LOOK_SECONDS, self._close_slowest)

    def _close_slowest(self) -> None:
        seen, self._seen = self._seen or {}, None
        progress = {each: each.taken - before for each, before in seen.items() if each in self._held}
        for each in sorted(progress, key=progress.__getitem__):
            if self.used <= self.limit or progress[each] >= LOOK_BYTES:
                break
            # Closing one may have closed others.
            if each in self._held:
                each.close("it doesn't read its answers while the memory for answers is used up")
        if self.used > self.limit and self._seen is None:
            self._look()

    def _close_largest(self) -> None:
        self._is_urgent = False
        for each in sorted(self._held, key=self._held.__getitem__, reverse=True):
            if self.used <= 2 * self.limit:
                break
            if each in self._held:
                each.close("its answers use up the memory for answers")
