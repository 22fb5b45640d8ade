"""How a group's leader divides partitions: Kafka's four assignors, by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...errors import ConfigurationError
from .base import NO_GENERATION, Assignment, Assignor, RebalanceProtocol, Subscription
from .ranges import RangeAssignor
from .roundrobin import RoundRobinAssignor
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
    RangeAssignor.name: RangeAssignor,
    RoundRobinAssignor.name: RoundRobinAssignor,
    StickyAssignor.name: StickyAssignor,
    CooperativeStickyAssignor.name: CooperativeStickyAssignor,
}


def assignors_named(strategies: Iterable[str | Assignor]) -> list[Assignor]:
    """One member's assignors, in order of preference: Kafka's by name, others as they are.

    Raises ConfigurationError for a name that isn't known, for two alike, and where there is none.
    """
    chosen: list[Assignor] = []
    for strategy in strategies:
        if isinstance(strategy, str):
            if strategy not in ASSIGNORS:
                known = ", ".join(ASSIGNORS)
                raise ConfigurationError(f"there is no assignment strategy {strategy!r}; there are {known}")
            strategy = ASSIGNORS[strategy]()
        if any(strategy.name == other.name for other in chosen):
            raise ConfigurationError(f"the assignment strategy {strategy.name!r} is named twice")
        chosen.append(strategy)
    if not chosen:
        raise ConfigurationError("a group member needs at least one assignment strategy")
    return chosen


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """How the member rebalances: in the newest way that all of its assignors know.

    So a group goes from eager to cooperative in two rolling restarts: first with both assignors, then without
    the eager one (KIP-429). Raises ConfigurationError where there is no common way.
    """
    common = frozenset.intersection(*(assignor.protocols for assignor in assignors))
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise ConfigurationError(f"no way of rebalancing is common to the assignment strategies {names}")
    return max(common)
