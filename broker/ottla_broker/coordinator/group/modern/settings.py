"""What the broker and a group's own configs say about groups of the consumer protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

DISABLED: Final = "disabled"
UPGRADE: Final = "upgrade"
DOWNGRADE: Final = "downgrade"
BIDIRECTIONAL: Final = "bidirectional"
MIGRATION_POLICIES: Final = (DISABLED, UPGRADE, DOWNGRADE, BIDIRECTIONAL)


class ConsumerGroupSettings(NamedTuple):
    """The broker's settings. Times are in ms; the defaults are Kafka 4.0's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
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


class GroupTimes(NamedTuple):
    """Session timeout and heartbeat interval of one group, in ms."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


TimesOf = Callable[[str], GroupTimes]
"""The times of a group by its id: its own configs, or the broker's."""
