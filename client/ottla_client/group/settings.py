"""What a member is told, and what it tells: settings, callbacks, and who it is in its group."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

from ..errors import ConfigurationError
from ..types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """Times in milliseconds; names and defaults are the Java consumer's.

    ``max_poll_interval_ms`` is also how long the group waits for the member to join a rebalance. A member with a
    ``group_instance_id`` is static (KIP-345): it doesn't leave at its close, and gets the same partitions when it
    is back within the session timeout.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    group_instance_id: str | None = None
    client_rack: str = ""

    def __post_init__(self) -> None:
        """Raises ConfigurationError."""
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} has to be more than 0, and is {getattr(self, name)}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigurationError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) has to be less than session_timeout_ms"
                f" ({self.session_timeout_ms}); a third of it is usual"
            )
        if self.group_instance_id == "":
            raise ConfigurationError(
                "group_instance_id can't be empty; None is for a member that isn't static"
            )


class MemberCallbacks(Protocol):
    """Told of every change of the assignment; heartbeats go on while they are awaited.

    Only what changes is named. An exception becomes the member's ``failure``; the rebalance goes on.
    """

    async def on_revoked(self, partitions: Set[TopicPartition]) -> None:
        """These are about to be given up, and still the member's: the time to commit. Not called for none."""

    async def on_assigned(self, partitions: Set[TopicPartition]) -> None:
        """These are new; ``assignment`` has them already. Called after every rebalance, for none as well."""

    async def on_lost(self, partitions: Set[TopicPartition]) -> None:
        """These have gone, perhaps to others, without a chance to commit. Not called for none."""
