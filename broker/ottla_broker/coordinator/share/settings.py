"""What the broker and a group's own configs say about share groups' records."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

LATEST, EARLIEST = "latest", "earliest"


class ShareSettings(NamedTuple):
    """Of one group. The defaults are Kafka 4.2's."""

    lock_ms: int = 30_000
    most_deliveries: int = 5
    most_locks: int = 2_000
    offset_reset: str | int = LATEST
    """Where a group starts in a partition: ``latest``, ``earliest``, or so many ms ago."""
    read_committed: bool = False
    key_ordered: bool = False
    """Whether a record waits until the earlier ones of its key are done with."""


SettingsOf = Callable[[str], ShareSettings]
"""The settings of a group by its id."""
