"""Settings of groups of the consumer protocol, from the broker's and a group's own configs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

UPGRADE: Final = "upgrade"
DOWNGRADE: Final = "downgrade"
BIDIRECTIONAL: Final = "bidirectional"


class ConsumerGroupSettings(NamedTuple):
    """The broker's settings; the defaults are Kafka 4.0's."""

    max_size: int = 2_147_483_647
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default."""
    migration_policy: str = BIDIRECTIONAL

    @property
    def upgrades(self) -> bool:
        """Whether a member of the consumer protocol turns a classic group with members into one of its own kind."""
        return self.migration_policy in (UPGRADE, BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether a group becomes a classic one when its last member of the consumer protocol has left."""
        return self.migration_policy in (DOWNGRADE, BIDIRECTIONAL)


_QUICK_INTERVAL_MS: Final = 2_000
_HEARTBEATS_PER_SECOND: Final = 200


class GroupTimes(NamedTuple):
    """Session timeout and heartbeat interval of one group, in ms."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    may_be_quicker: bool = False
    """Whether the interval is the default, so that members may heartbeat more often."""

    def interval_for(self, members: int) -> int:
        """The interval to hand out, in ms, if the coordinator has this number of members in all its groups.

        A member learns of a new assignment from its heartbeat, so short intervals make quick rebalances. Kafka's 5 s
        are for many members. Few get 2 s, as long as all of them together send at most 200 heartbeats a second.
        """
        if not self.may_be_quicker:
            return self.heartbeat_interval_ms
        quick = max(_QUICK_INTERVAL_MS, members * 1000 // _HEARTBEATS_PER_SECOND)
        return min(quick, self.heartbeat_interval_ms)


TimesOf = Callable[[str], GroupTimes]
"""The times of a group by its id: its own configs, or the broker's."""
