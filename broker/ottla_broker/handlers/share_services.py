"""The parts of the broker that handlers of share groups' records use."""

from __future__ import annotations

from dataclasses import dataclass

from ottla_broker.coordinator.group.share.offsets import ShareOffsets
from ottla_broker.coordinator.share.persister import Persister
from ottla_broker.coordinator.share.sessions import ShareSessions
from ottla_broker.coordinator.share.share_partitions import SharePartitions
from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator


@dataclass(slots=True)
class ShareServices:
    """Owned by the loop thread.

    Attributes:
        coordinator: this broker's part of the share coordinators; ``persister`` reaches all of them.
    """

    partitions: SharePartitions
    sessions: ShareSessions
    coordinator: ShareStateCoordinator
    persister: Persister
    offsets: ShareOffsets
