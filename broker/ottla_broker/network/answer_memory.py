"""The bound on the bytes of answers that clients don't take."""

from __future__ import annotations

from typing import Final, Protocol

from ottla_broker.clock import Clock
from ottla_broker.network.account import Account, Closable

SMALL_ANSWERS: Final = 16 * 1024
"""Up to this many bytes of a connection aren't counted."""


class Holder(Closable, Protocol):
    """A connection with answers that its client hasn't taken."""

    @property
    def taken(self) -> int:
        """The bytes of answers that the client has taken so far."""
        ...


class AnswerMemory(Account[Holder]):
    """Counts the bytes of answers in memory that wait for their clients. Owned by the loop thread.

    An answer is never held back, and slices of files take no memory. While more than the bound is counted, the
    connections that take the fewest bytes are closed: clients that ask for much and read nothing must not use up the
    memory of the others. Beyond twice the bound, those that hold the most are closed at once, however fast they read.
    """

    TOO_SLOW = "it doesn't read its answers while the memory for answers is used up"

    def __init__(self, limit: int, clock: Clock) -> None:
        super().__init__(limit, clock)
        self._is_urgent = False

    @property
    def is_short(self) -> bool:
        return self.used > self.limit

    def hold(self, owner: Holder, size: int) -> None:
        """``owner`` holds ``size`` bytes now."""
        self.used += size - self._sizes.get(owner, 0)
        if size:
            self._sizes[owner] = size
        else:
            self._sizes.pop(owner, None)
        if self.is_short:
            self._watch()
            if self.used > 2 * self.limit and not self._is_urgent:
                self._is_urgent = True
                self._clock.call_later(0, self._close_largest)

    def _moved(self) -> dict[Holder, int]:
        return {each: each.taken for each in self._sizes}

    def _close_largest(self) -> None:
        self._is_urgent = False
        for each in sorted(self._sizes, key=self._sizes.__getitem__, reverse=True):
            if self.used <= 2 * self.limit:
                break
            if each in self._sizes:
                each.close("its answers use up the memory for answers")
