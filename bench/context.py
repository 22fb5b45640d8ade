"""What every measurement gets: the brokers, the size of loads, a folder, and the results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness import wire
from harness.brokers import HOST, Broker, running

from bench.results import Results, number


@dataclass(slots=True)
class Bench:
    """One run, which takes each figure ``repeats`` times; ``quick`` makes loads about ten times smaller."""

    kinds: list[type[Broker]]
    folder: Path
    quick: bool
    repeats: int
    results: Results = field(default_factory=Results)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def scaled(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def broker(self, kind: type[Broker], settings: dict[str, str] | None = None) -> Broker:
        """Make a broker with a new folder, without starting it."""
        return kind(self.folder / f"{kind.name}-{next(self._numbers)}", settings)

    @contextmanager
    def all_up(self, settings: dict[str, str] | None = None) -> Iterator[list[Broker]]:
        """Start all brokers, so that repeats alternate between them while both are warm.

        Only one is loaded at a time; the cost of the idle one is within the noise.
        """
        with ExitStack() as stack:
            yield [stack.enter_context(running(self.broker(kind, settings))) for kind in self.kinds]

    def topic(self, broker: Broker, partitions: int = 4, configs: dict[str, str] | None = None) -> str:
        """Create a topic, and wait until all its partitions have leaders."""
        name = f"bench-{next(self._numbers)}"
        connection = wire.Connection(HOST, broker.port)
        connection.create(name, partitions, configs)
        connection.close()
        return name

    def drop(self, broker: Broker, topic: str) -> None:
        """Delete a topic, so that loads do not fill the disk."""
        connection = wire.Connection(HOST, broker.port)
        connection.delete(topic)
        connection.close()

    def add(self, measure: str, name: str, unit: str, better: str, broker: Broker, value: float) -> None:
        """Record a figure and print it."""
        self.results.add(measure, name, unit, better, broker.name, value)
        print(f"  {broker.name:6} {name}: {number(value, unit)}", flush=True)
