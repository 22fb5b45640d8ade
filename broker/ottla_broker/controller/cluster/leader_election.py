"""Choosing a partition's leader and in-sync replicas: pure functions of what is known.

Kafka's ``Election`` and ``PartitionLeaderElectionAlgorithms``. A leader is always an in-sync replica, so that nothing
committed is lost; the one exception is an unclean election, which must be allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Elected(NamedTuple):
    """A leader and the in-sync replicas that it starts with. ``unclean``: committed records may be lost."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def when_offline(
    replicas: Sequence[int], isr: Collection[int], live: Collection[int], unclean_allowed: bool
) -> Elected | None:
    """Elect the first live in-sync replica, or, if allowed, the first live one."""
    for broker in replicas:
        if broker in live and broker in isr:
            return Elected(broker, tuple(b for b in isr if b in live))
    if unclean_allowed:
        for broker in replicas:
            if broker in live:
                return Elected(broker, (broker,), unclean=True)
    return None


def preferred(replicas: Sequence[int], isr: Collection[int], live: Collection[int]) -> Elected | None:
    """Elect the first replica if it can lead."""
    first = replicas[0]
    return Elected(first, tuple(isr)) if first in live and first in isr else None


def when_shutting_down(
    replicas: Sequence[int], isr: Collection[int], live: Collection[int], shutting_down: Collection[int]
) -> Elected | None:
    """Elect the first in-sync replica that stays. Brokers that shut down are no longer in sync.

    ``live`` includes ``shutting_down``.
    """
    stay = tuple(broker for broker in isr if broker not in shutting_down)
    for broker in replicas:
        if broker in live and broker in stay:
            return Elected(broker, stay)
    return None
