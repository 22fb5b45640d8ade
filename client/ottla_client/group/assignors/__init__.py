"""Kafka's four assignors, by which a group's leader divides partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...errors import ConfigurationError
from .base import NO_GENERATION, Assignment, Assignor, RebalanceProtocol, Subscription
from .eager import RangeAssignor, RoundRobinAssignor
from .sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "NO_GENERATION",
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "assignors_named",
    "common_protocol",
]

ASSIGNORS: dict[str, Callable[[], Assignor]] = {
    kind.name: kind for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def assignors_named(strategies: Iterable[str | Assignor]) -> list[Assignor]:
    """A member's assignors in order of preference: Kafka's by name, or objects.

    Raises ConfigurationError for an unknown name, a name given twice, and an empty list.
    """
    chosen: list[Assignor] = []
    for strategy in strategies:
        if isinstance(strategy, str):
            if strategy not in ASSIGNORS:
                known = ", ".join(ASSIGNORS)
                raise ConfigurationError(f"unknown assignment strategy {strategy!r}; known are {known}")
            strategy = ASSIGNORS[strategy]()
        if any(strategy.name == other.name for other in chosen):
            raise ConfigurationError(f"the assignment strategy {strategy.name!r} is given twice")
        chosen.append(strategy)
    if not chosen:
        raise ConfigurationError("a group member needs at least one assignment strategy")
    return chosen


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The highest rebalance protocol that all assignors of a member support.

    So a group changes from eager to cooperative in two rolling restarts: first with both assignors, then without the
    eager one (KIP-429). Raises ConfigurationError if the assignors share none.
    """
    common = frozenset.intersection(*(assignor.protocols for assignor in assignors))
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise ConfigurationError(f"the assignment strategies {names} share no rebalance protocol")
    return max(common)
