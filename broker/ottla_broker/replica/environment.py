"""Parts that all partitions of a broker share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla_broker.counters import ReplicaCounters
from ottla_broker.replica.leader_lease import UNLIMITED, LeaderLease

if TYPE_CHECKING:
    from ottla_broker.clock import Clock
    from ottla_broker.log.manager import LogManager
    from ottla_broker.replica.isr import IsrChange


def _no_controller(change: IsrChange) -> None:
    raise RuntimeError(
        f"{change.topic}-{change.partition}: no controller decides about in-sync replicas here"
    )


@dataclass(slots=True, eq=False)
class ReplicaEnvironment:
    """The parts of its broker that a partition needs; the defaults suit a broker that stands alone.

    Attributes:
        max_lag_seconds: ``replica.lag.time.max.ms``: a replica that hasn't caught up for that long is out of sync.
        is_eligible: whether a broker, under a registration's epoch, may join the in-sync replicas: it is alive.
        propose: takes a change of the in-sync replicas to the controller.
        leader_lease: whether another broker may have replaced this one as leader.
        counters: what the partitions count, for metrics.
    """

    broker_id: int
    logs: LogManager
    clock: Clock
    max_lag_seconds: float = 30.0
    is_eligible: Callable[[int, int], bool] = lambda broker_id, broker_epoch: True
    propose: Callable[[IsrChange], None] = _no_controller
    leader_lease: LeaderLease = UNLIMITED
    counters: ReplicaCounters = field(default_factory=ReplicaCounters)
