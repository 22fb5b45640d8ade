"""A member's settings and callbacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from ..errors import ConfigurationError
from ..settings import ConnectionSettings
from ..types import TopicPartition

_INT32_MAX = 2**31 - 1


def check_numbers(settings: ConnectionSettings, names: Iterable[str], least: int) -> None:
    """Raise ConfigurationError unless these options are whole numbers of at least ``least`` in 32 bits."""
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int) or not least <= value <= _INT32_MAX:
            raise ConfigurationError(
                f"{name} is {value!r}; it must be a whole number from {least} to {_INT32_MAX}"
            )


def check_choices(settings: ConnectionSettings, **allowed: Sequence[str]) -> None:
    """Raise ConfigurationError unless each of these options has one of its values."""
    for name, values in allowed.items():
        if getattr(settings, name) not in values:
            raise ConfigurationError(
                f"{name} is {getattr(settings, name)!r}; it must be one of {', '.join(map(repr, values))}"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MemberSettings(ConnectionSettings):
    """Times in milliseconds; names and defaults are the Java consumer's.

    ``max_poll_interval_ms`` is also how long the group waits for the member to join a rebalance. A member with a
    ``group_instance_id`` is static (KIP-345): it doesn't leave when it closes, and gets the same partitions if it comes
    back within the session timeout.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    group_instance_id: str | None = None
    client_rack: str = ""

    def __post_init__(self) -> None:
        ConnectionSettings.__post_init__(self)
        check_numbers(self, ("session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms"), 1)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigurationError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be below session_timeout_ms"
                f" ({self.session_timeout_ms}); a third of it is usual"
            )
        if self.group_instance_id == "":
            raise ConfigurationError(
                "group_instance_id is empty; leave it out for a member that isn't static"
            )


class MemberCallbacks(Protocol):
    """Called at every change of the assignment; heartbeats continue meanwhile.

    The arguments are the changed partitions. An exception becomes the member's ``failure``; the rebalance continues.
    """

    async def on_revoked(self, partitions: Set[TopicPartition]) -> None:
        """These are given up after the call, so commit now. Not called without partitions."""

    async def on_assigned(self, partitions: Set[TopicPartition]) -> None:
        """These are new, and in ``assignment``. Called after every rebalance, also without partitions."""

    async def on_lost(self, partitions: Set[TopicPartition]) -> None:
        """These are lost, perhaps to others, so commits fail. Not called without partitions."""
