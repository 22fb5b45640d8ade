"""A landing job's progress: bars at a terminal, one line per batch for a log, JSON for a machine.

`JobProgress` computes what is shown, from the batches alone and with a clock that is passed in. rich is imported only
to draw on a terminal.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from ottla_cli import amount_of_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from .landing import BatchDone
    from .landing.ledger import OffsetsByTopic

# Seconds over which rates are computed: long enough for steady rates, short enough to follow.
_WINDOW = 30.0
# Redraws per second; each asks Spark for the current batch's tasks.
_DRAWN = 4
# More topics than these share one bar.
_BARS = 6


@dataclass(frozen=True, slots=True)
class Step:
    """A topic's progress: offsets done since the run began, and all offsets to do so far."""

    done: int
    total: int


@dataclass
class JobProgress:
    """The sums and rates of a run. ``clock`` gives seconds."""

    clock: Callable[[], float] = monotonic
    batches: int = 0
    rows: int = 0
    bytes: int = 0
    files: int = 0
    dead_letters: int = 0
    lag: int | None = None
    """Records left to land, as the last batch says (:attr:`.BatchDone.lag`); None if it isn't known."""
    topics: dict[str, Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._first: dict[tuple[str, int], int] = {}
        self._ends: dict[tuple[str, int], int] = {}
        # (when, rows, bytes, offsets) up to then
        self._past: deque[tuple[float, int, int, int]] = deque([(self.clock(), 0, 0, 0)])

    def add(self, done: BatchDone) -> None:
        self.batches += 1
        self.rows += done.rows
        self.bytes += done.bytes
        self.files += done.files
        self.dead_letters += done.dead_letters
        for place, offset in _flat(done.start).items():
            self._first.setdefault(place, offset)
        # A batch has the offsets of its own partitions, and the log's ends of all partitions.
        self._ends |= _flat(done.end)
        latest = _flat(done.latest)
        self.topics = {}
        for place, offset in self._ends.items():
            first, so_far = self._first.setdefault(place, offset), self.topics.get(place[0], Step(0, 0))
            end = max(latest.get(place, 0), offset)
            self.topics[place[0]] = Step(so_far.done + offset - first, so_far.total + end - first)
        self.lag = done.lag
        now = self.clock()
        self._past.append((now, self.rows, self.bytes, sum(step.done for step in self.topics.values())))
        while len(self._past) > 2 and self._past[1][0] < now - _WINDOW:
            self._past.popleft()

    @property
    def rates(self) -> tuple[float, float, float]:
        """Recent rows, bytes and offsets per second; 0 before the first batch."""
        began, last = self._past[0], self._past[-1]
        seconds = last[0] - began[0]
        if seconds <= 0:
            return 0.0, 0.0, 0.0
        return tuple((new - old) / seconds for new, old in zip(last[1:], began[1:], strict=True))  # type: ignore[return-value]

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the log's end is reached at this rate; None if unknown."""
        offsets = self.rates[2]
        if not self.topics or offsets <= 0:
            return None
        left = sum(step.total - step.done for step in self.topics.values())
        return max(left / offsets - (self.clock() - self._past[-1][0]), 0.0)


def _flat(offsets: OffsetsByTopic) -> dict[tuple[str, int], int]:
    return {
        (topic, partition): offset for topic, parts in offsets.items() for partition, offset in parts.items()
    }


def batch_document(done: BatchDone) -> dict[str, Any]:
    """The JSON object of a batch for ``--json``. Seconds have three decimals."""
    document = done.to_json()
    document["seconds"] = round(done.seconds, 3)
    document["durations"] = {name: round(value, 3) for name, value in done.durations.items()}
    document["rows_per_second"] = round(done.rows / done.seconds) if done.seconds > 0 else None
    return document


class JsonLines:
    """One JSON object per batch, for machines. ``write`` gets a line without its newline."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._progress = JobProgress()

    def batch(self, done: BatchDone) -> None:
        self._progress.add(done)
        self._write(self._line(done))

    def _line(self, done: BatchDone) -> str:
        return json.dumps(batch_document(done), ensure_ascii=False)

    def say(self, text: str) -> None:
        """Drop messages: machines don't read them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Lines(JsonLines):
    """One line per batch, for a log or without rich."""

    def _line(self, done: BatchDone) -> str:
        return f"batch {done.batch_id}: {facts(done)} in {done.seconds:.2f} s, lag {shown(done.lag)}"

    def say(self, text: str) -> None:
        self._write(text)


def facts(done: BatchDone) -> str:
    """Rows, bytes, files, and dead letters if there are any."""
    text = f"{count(done.rows, 'row')} ({amount_of_bytes(done.bytes)}), {count(done.files, 'file')}"
    return f"{text}, {count(done.dead_letters, 'dead letter')}" if done.dead_letters else text


def shown(lag: int | None) -> str:
    return "unknown" if lag is None else f"{lag:,}"


def count(number: int, what: str) -> str:
    """``1 row``, ``2,000 rows``"""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """``0:08``, ``1:02:03``"""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


class Bars:
    """One bar per topic, and below it rates, lag, files and the estimated end. Raises ImportError without rich.

    A thread of rich draws it a few times a second; batches come from the job's thread. ``under_way`` returns how many
    tasks of the current batch are done, and their number.
    """

    def __init__(self, progress: JobProgress, under_way: Callable[[], tuple[int, int] | None]) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        self._progress = progress
        self._under_way = under_way
        self._lock = threading.Lock()
        self._spinner = Spinner("dots", style="green")
        self._live: Live = Live(
            console=Console(file=sys.stderr),
            get_renderable=self._draw,
            refresh_per_second=_DRAWN,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def batch(self, done: BatchDone) -> None:
        with self._lock:
            self._progress.add(done)

    def say(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _draw(self) -> RenderableType:
        from rich.console import Group

        tasks = self._under_way()
        with self._lock:
            progress = self._progress
            parts: list[RenderableType] = []
            if progress.batches:
                parts += [self._bars(), _facts_of(progress)]
            self._spinner.update(text=_moment(progress, tasks))
            parts.append(self._spinner)
        return Group(*parts)

    def _bars(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        steps = dict(sorted(self._progress.topics.items()))
        if len(steps) > _BARS:
            together = Step(
                sum(step.done for step in steps.values()), sum(step.total for step in steps.values())
            )
            steps = {f"{len(steps)} topics": together}
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True, max_width=24)
        grid.add_column(no_wrap=True)
        for _ in range(2):
            grid.add_column(justify="right", no_wrap=True)
        for name, step in steps.items():
            share = step.done / step.total if step.total else 1.0
            bar = ProgressBar(
                max(step.total, 1),
                step.done if step.total else 1,
                width=32,
                complete_style="green",
                finished_style="green",
            )
            # Never 100 % before the end.
            percent = f"{min(int(share * 100), 99) if step.done < step.total else 100:>3}%"
            grid.add_row(Text(name), bar, percent, f"{step.done:,} of {step.total:,}")
        return grid


Shown = Bars | JsonLines
"""Shows a job's progress; enter it around the whole run."""


def _facts_of(progress: JobProgress) -> RenderableType:
    from rich.text import Text

    rows, size, _ = progress.rates
    left = progress.seconds_left
    text = Text(no_wrap=False)
    text.append(f"{rows:,.0f} rows/s  {amount_of_bytes(size)}/s", style="green")
    text.append(f"  lag {shown(progress.lag)}  {count(progress.files, 'file')}")
    if progress.dead_letters:
        text.append(f"  {count(progress.dead_letters, 'dead letter')}", style="red")
    if progress.lag and left is not None:
        text.append(f"  {duration(left)} left", style="bold")
    return text


def _moment(progress: JobProgress, tasks: tuple[int, int] | None) -> str:
    if tasks is None:
        return (
            f"{count(progress.batches, 'batch').replace('batchs', 'batches')} done"
            if progress.batches
            else "looking at the topics"
        )
    return f"batch {progress.batches + 1}: {tasks[0]} of {count(tasks[1], 'task')} done"


def tasks_of(spark: Any) -> Callable[[], tuple[int, int] | None]:
    """A function that returns how many tasks of the running stages are done, and their number; None if none runs."""
    tracker = spark.sparkContext.statusTracker()

    def ask() -> tuple[int, int] | None:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        if not known:
            return None
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)

    return ask
