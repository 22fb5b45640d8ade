"""Whether this broker may still take itself for the leader of what it was told to lead.

As long as ZooKeeper can't have ended its session, nobody else leads in its place because of its silence. After that,
somebody may: or nobody, as ZooKeeper is down for all. Which of both it is, the other replicas show. A new leader is one
of those that are in sync; whoever still fetches from this broker in its epoch has not been told to lead, and a process
that has ended can't. So a partition goes on being led while each replica in sync does one or the other, and is given
up for the time being when one is silent that may be alive. What a judgement that comes too late can't do any harm to is
what acks=all has acknowledged: that takes all replicas in sync, in this epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from ottla_broker.store.api import Lease

DOUBT_SECONDS: Final = 1.0
"""How long a follower may be silent, beyond what its fetch may wait here, before it is taken for one that may lead."""


class Standing:
    """One for all partitions of a broker. Owned by the loop thread.

    Attributes:
        lease: of the session with ZooKeeper under which the controller has told this broker what to lead.
        patience: how many seconds ago a follower must have fetched to count as one that follows.
        is_dead: whether a broker's process is known to have ended.
    """

    __slots__ = ("is_dead", "lease", "patience")

    def __init__(
        self,
        lease: Lease,
        patience: float = DOUBT_SECONDS,
        is_dead: Callable[[int], bool] = lambda broker: False,
    ) -> None:
        self.lease = lease
        self.patience = patience
        self.is_dead = is_dead


ASSURED: Final = Standing(Lease(inf))
"""Of a broker whom nobody can replace."""
