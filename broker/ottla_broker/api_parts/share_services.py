"""The parts of the broker that handlers of share groups' records use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla_broker.coordinator.group.share.groups import ShareGroups
from ottla_broker.coordinator.group.share.offsets import ShareOffsets
from ottla_broker.coordinator.share.persister import Persister
from ottla_broker.coordinator.share.sessions import ShareSessions
from ottla_broker.coordinator.share.share_partitions import SharePartitions
from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator


class Leaders(Protocol):
    """The other brokers, as leaders of partitions."""

    async def bounds(
        self, broker_id: int, partitions: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """The logs' starts and high watermarks, as far as the broker knows them. Raises KafkaError."""


@dataclass(slots=True)
class ShareServices:
    """Owned by the loop thread.

    Attributes:
        groups: those that this broker coordinates.
        coordinator: this broker's part of the share coordinators; ``persister`` reaches all of them.
        leader_of: the leader of a partition; None or -1: there is none.
        leaders: None for a broker that stands alone.
    """

    groups: ShareGroups
    partitions: SharePartitions
    sessions: ShareSessions
    coordinator: ShareStateCoordinator
    persister: Persister
    offsets: ShareOffsets
    leader_of: Callable[[str, int], int | None]
    leaders: Leaders | None = None
