"""A leader's knowledge of a follower, learnt from its fetches: Kafka's ``Replica``."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

UNKNOWN_OFFSET: Final = -1
NEVER: Final = float("-inf")


@dataclass(slots=True, eq=False)
class FollowerState:
    """One follower of a partition that this broker leads. Owned by the partition.

    Attributes:
        end_offset: its log's end, which is where it fetches from; -1 until it has fetched in this leader's epoch.
        start_offset: its log's start, -1 while unknown.
        last_fetch: when its last fetch came, in seconds on the monotonic clock.
        followed_at: when it was still following, on the same clock: its last fetch was sent after that. The fetch may
            have waited in this broker's socket for long, while the broker was frozen.
        caught_up: when it last had all that the leader had, on the same clock.
        broker_epoch: of the registration it fetches under, -1 where the fetch doesn't say (KIP-903).
    """

    broker_id: int
    end_offset: int = UNKNOWN_OFFSET
    start_offset: int = UNKNOWN_OFFSET
    caught_up: float = NEVER
    broker_epoch: int = -1
    last_fetch: float = NEVER
    followed_at: float = NEVER
    _leader_end_at_last_fetch: int = 0

    def begin_epoch(self, now: float, leader_end: int, in_sync: bool) -> None:
        """Forget what was known in the epoch before; an in-sync replica gets time to show that it still is."""
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.caught_up = now if in_sync else NEVER
        self.last_fetch = self.followed_at = now if in_sync else NEVER
        self._leader_end_at_last_fetch = leader_end if in_sync else 0
        self.broker_epoch = -1

    def fetched(
        self,
        offset: int,
        start_offset: int,
        leader_end: int,
        now: float,
        broker_epoch: int,
        sent_after: float = inf,
    ) -> None:
        """Record a fetch from ``offset``, sent after ``sent_after``: the follower has everything below.

        It is caught up now if that is the leader's end, and was caught up at its last fetch if it now has what was the
        leader's end then. So a follower that is always one fetch behind a busy leader counts as in sync.
        """
        if offset >= leader_end:
            self.caught_up = max(self.caught_up, now)
        elif offset >= self._leader_end_at_last_fetch:
            self.caught_up = max(self.caught_up, self.last_fetch)
        self.end_offset = offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
        self._leader_end_at_last_fetch = leader_end
        self.last_fetch = now
        self.followed_at = min(now, sent_after)

    def fetched_again(self, now: float, sent_after: float = inf) -> None:
        """Record a fetch of the same offset as before, which is still the leader's end."""
        self.caught_up = now
        self._leader_end_at_last_fetch = self.end_offset
        self.last_fetch = now
        self.followed_at = min(now, sent_after)

    def is_caught_up(self, leader_end: int, now: float, max_lag: float) -> bool:
        """Whether it has everything, or had it within the last ``max_lag`` seconds."""
        return self.end_offset == leader_end or now - self.caught_up <= max_lag
