"""Tells whether this broker may still act as the leader of what the controller has made it lead.

While ZooKeeper can't have ended this broker's session, no other broker leads in its place. After that another broker
may, or none, because ZooKeeper is down for all of them. The other replicas show which: a new leader is always one of
the in-sync replicas, a replica that still fetches from this broker in its epoch hasn't become leader, and neither has
one whose process has ended. So a partition stays led while every in-sync replica fetches or has ended, and is refused
for the time being when one is silent that may be alive. A judgement that comes too late can't harm records that
acks=all has acknowledged, because that takes all in-sync replicas, in this epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from ottla_broker.store.api import Lease

DOUBT_SECONDS: Final = 1.0
"""How long a follower may be silent, on top of its fetch's wait here, before it may have become leader."""


@dataclass(slots=True, eq=False)
class LeaderLease:
    """One for all partitions of a broker. Owned by the loop thread.

    Attributes:
        lease: of the ZooKeeper session under which the controller has made this broker a leader.
        patience: seconds within which a follower must have fetched to count as following.
        is_dead: whether a broker's process is known to have ended.
    """

    lease: Lease
    patience: float = DOUBT_SECONDS
    is_dead: Callable[[int], bool] = lambda broker: False


UNLIMITED: Final = LeaderLease(Lease(inf))
"""For a broker that no other can replace."""
