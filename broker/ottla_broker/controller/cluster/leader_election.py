"""Who leads a partition, and who is in sync then: pure functions of what is known.

Kafka's ``Election`` and ``PartitionLeaderElectionAlgorithms``. A leader is always one that is in sync, so that nothing
committed is lost; the one exception is an unclean election, which has to be allowed.
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
    """The leader is gone: the first replica that is alive and in sync, else, if allowed, the first that is alive."""
    for broker in replicas:
        if broker in live and broker in isr:
            return Elected(broker, tuple(b for b in isr if b in live))
    if unclean_allowed:
        for broker in replicas:
            if broker in live:
                return Elected(broker, (broker,), unclean=True)
    return None


def when_reassigned(target: Sequence[int], isr: Collection[int], live: Collection[int]) -> Elected | None:
    """The replicas are to be ``target``: the first of them that is alive and in sync."""
    for broker in target:
        if broker in live and broker in isr:
            return Elected(broker, tuple(isr))
    return None


def preferred(replicas: Sequence[int], isr: Collection[int], live: Collection[int]) -> Elected | None:
    """The first replica of all, where it can lead."""
    first = replicas[0]
    return Elected(first, tuple(isr)) if first in live and first in isr else None


def when_shutting_down(
    replicas: Sequence[int], isr: Collection[int], live: Collection[int], leaving: Collection[int]
) -> Elected | None:
    """Brokers are about to stop: the first replica that is in sync and stays. Those who leave are out of sync at once.

    ``live`` includes those who are about to stop.
    """
    stay = tuple(broker for broker in isr if broker not in leaving)
    for broker in replicas:
        if broker in live and broker in stay:
            return Elected(broker, stay)
    return None
