"""The parts of the broker that its coordinators are built from."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.metadata.cache import NO_LEADER

if TYPE_CHECKING:
    from ottla_broker.cluster.member import ClusterMember
    from ottla_broker.config import BrokerConfig
    from ottla_broker.controller.api import Controller
    from ottla_broker.coordinator.share.share_partition import InTurns
    from ottla_broker.metadata.cache import MetadataCache
    from ottla_broker.replica.manager import ReplicaManager


class CoordinatorEnvironment(NamedTuple):
    """Owned by the loop thread.

    Attributes:
        member: None for a broker that stands alone.
        run: runs a function on a thread.
        in_turns: runs a generator in turns with requests; it yields its work.
    """

    config: BrokerConfig
    clock: Clock
    random: Random
    metadata: MetadataCache
    replicas: ReplicaManager
    controller: Controller
    member: ClusterMember | None
    run: Callable[..., Any]
    in_turns: InTurns

    def partitions_of(self, topic: str, configured: int) -> int:
        """The number of partitions that an internal topic has or will have."""
        found = self.metadata.topic(topic)
        return configured if found is None else len(found.partitions)

    def leader_of(self, topic: str, index: int) -> int | None:
        """The broker that leads a partition; -1 while there is none, None: there is no such partition."""
        known = self.metadata.client_topic(topic)
        if known is not None and index in known.leaders:
            return known.leaders[index]
        return None if self.knows_cluster() else NO_LEADER

    def knows_cluster(self) -> bool:
        """Whether the controller has sent this broker all there is.

        It has joined without topics if they took long, but what coordinates has at least its own.
        """
        member = self.member
        return member is None or (member.controller_requests.joined.is_set() and len(self.metadata) > 0)
