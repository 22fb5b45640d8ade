"""Bars at a terminal, plain lines otherwise."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.demo.flights import Delays

BARS = ["acknowledged", "consumed by member 1", "consumed by member 2", "consumed in all"]


class Screen(Protocol):
    """Where the demo tells what happens."""

    def say(self, line: str) -> None: ...
    def show(self, counts: list[int]) -> None: ...
    def __enter__(self) -> Screen: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Bars:
    """Progress bars with the events above them."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks: list[TaskID] = [self._progress.add_task(name, total=total) for name in BARS]

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False)

    def show(self, counts: list[int]) -> None:
        for task, count in zip(self._tasks, counts, strict=True):
            self._progress.update(task, completed=count)

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class Lines:
    """A line an event, and one every two seconds with the counts."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._began = self._told = time.monotonic()

    def say(self, line: str) -> None:
        self._console.print(
            f"{time.monotonic() - self._began:5.1f} s  {line}", highlight=False, soft_wrap=True
        )

    def show(self, counts: list[int]) -> None:
        if time.monotonic() - self._told >= 2:
            self._told = time.monotonic()
            acknowledged, first, second, both = counts
            self.say(
                f"{acknowledged:,} of {self._total:,} acknowledged; "
                f"consumed {both:,} = member 1 {first:,} + member 2 {second:,}"
            )

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def screen(console: Console, total: int) -> Screen:
    return Bars(console, total) if console.is_terminal else Lines(console, total)


def arrivals(consumed: Delays, csv: Delays, names: dict[str, str]) -> Table:
    """Flights and mean arrival delay by carrier, from what was consumed, beside the CSV's."""
    table = Table(
        title="Flights from New York in 2013 and their arrival delays, as consumed", box=box.SIMPLE_HEAD
    )
    table.add_column("carrier", no_wrap=True)
    table.add_column("flights", justify="right")
    table.add_column("mean delay, min", justify="right")
    table.add_column("from the CSV", justify="right")
    table.add_column("")
    for carrier in sorted(csv.flights, key=lambda code: -csv.flights[code]):
        table.add_row(
            f"{carrier} {names.get(carrier, '')}",
            f"{consumed.flights.get(carrier, 0):,}",
            f"{consumed.mean(carrier):.2f}",
            f"{csv.mean(carrier):.2f}",
            "same" if consumed.same(csv, carrier) else "DIFFERENT",
        )
    return table
