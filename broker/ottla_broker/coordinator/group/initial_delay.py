"""The wait of a new group for more members before its first rebalance (KIP-134, decision 30)."""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST = 1 / 3
"""The part of ``group.initial.rebalance.delay.ms`` that is waited for after every member."""

GAPS = 4
"""The silence that ends the wait, in longest gaps between two members that came."""


@dataclass(slots=True)
class InitialDelay:
    """The wait of one new group. Times are seconds on the monotonic clock.

    Members that are started together come close together, so a silence of several times the longest gap between two of
    them means that all have come. A member that stays alone, and members that come one by one, are waited for as long
    as the setting says.

    Attributes:
        delay: ``group.initial.rebalance.delay.ms``, the longest silence waited for.
        last: when the last member came.
        until: when the wait ends though members still come.
        longest_gap: the longest time between two members; None while there is only one.
    """

    delay: float
    last: float
    until: float
    longest_gap: float | None = None

    def member_came(self, now: float) -> None:
        """Extend the wait for a member that came after the first."""
        self.longest_gap = max(self.longest_gap or 0.0, now - self.last)
        self.last = now

    @property
    def shortest(self) -> float:
        """The least time from now in which the wait can end if another member comes."""
        return self.delay * SHORTEST

    @property
    def over_at(self) -> float:
        """The end of the wait if no other member comes; never moves to an earlier time once a second has come."""
        silence = self.delay
        if self.longest_gap is not None:
            silence = min(self.delay, max(self.shortest, GAPS * self.longest_gap))
        return min(self.last + silence, self.until)
