"""Progress bars on a terminal, plain lines otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.demo.flights import Delays


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one course; ``good`` if every flight arrived once and the delays agree with the CSV."""

    producer: str
    consumer: str
    acknowledged: int
    consumed: int
    lost: int
    doubled: int
    redelivered: int
    commits_failed: int
    outage_seconds: float
    produced_per_second: float
    consumed_per_second: float
    good: bool


BARS = ["acknowledged", "consumed by member 1", "consumed by member 2", "consumed in all"]


class Screen(Protocol):
    """The demo's output."""

    def say(self, line: str) -> None: ...
    def course(self, name: str) -> None: ...
    def show(self, counts: list[int]) -> None: ...
    def __enter__(self) -> Screen: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Bars:
    """Progress bars, with events above them."""

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

    def course(self, name: str) -> None:
        self._console.rule(name, align="left")
        for task in self._tasks:
            self._progress.reset(task)

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
    """One line per event, and the counts every two seconds."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._began = self._told = time.monotonic()

    def say(self, line: str) -> None:
        self._console.print(
            f"{time.monotonic() - self._began:5.1f} s  {line}", highlight=False, soft_wrap=True
        )

    def course(self, name: str) -> None:
        self.say(f"-- {name}")

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
    """Flights and mean arrival delay by carrier: as consumed, beside the CSV's."""
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


def outcomes(results: Sequence[Outcome]) -> Table:
    """One column per course: its clients and the outcome for the flights. Fits into 80 columns."""
    table = Table(
        title="By client; the broker was killed in each course, and a member left",
        caption="doubled: stored twice. read again: the same stored flight, as a commit did not get through;"
        " counts once. outage: from the kill to the next acknowledgement; the rates include it.",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("producer", no_wrap=True)
    for result in results:
        table.add_column(result.producer, justify="right", no_wrap=True)
    rows: list[tuple[str, Callable[[Outcome], str]]] = [
        ("group of two", lambda course: course.consumer),
        ("acknowledged", lambda course: f"{course.acknowledged:,}"),
        ("consumed", lambda course: f"{course.consumed:,}"),
        ("lost", lambda course: f"{course.lost:,}"),
        ("doubled", lambda course: f"{course.doubled:,}"),
        ("read again", lambda course: f"{course.redelivered:,}"),
        ("not committed", lambda course: f"{course.commits_failed:,}"),
        ("outage, s", lambda course: f"{course.outage_seconds:.2f}"),
        ("produced, /s", lambda course: f"{course.produced_per_second:,.0f}"),
        ("consumed, /s", lambda course: f"{course.consumed_per_second:,.0f}"),
        ("all in all", lambda course: "good" if course.good else "NOT GOOD"),
    ]
    for label, cell in rows:
        table.add_row(label, *(cell(result) for result in results))
    return table
