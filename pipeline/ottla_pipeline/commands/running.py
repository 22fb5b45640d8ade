"""Running a job of batches for somebody who watches it, and ending it when they say so."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from types import FrameType
from typing import TYPE_CHECKING

from ottla_client.commands.console import Console
from ottla_client.commands.progress import amount_of_bytes

from ..progress import Bars, Course, JsonLines, Lines, Shown, count, duration, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..landing import BatchDone, Landed

OnBatch = Callable[["BatchDone"], None]
Job = Callable[[OnBatch, threading.Event], "Landed"]
"""A job: it gets what to call with each batch, and an event that it ends at."""

# Seconds between looks whether a batch is under way, once the end was asked for; and looks that must agree.
_LOOK, _LOOKS = 0.25, 4
_SAID = "ending after the batch under way; once more ends at once"


def run_job(console: Console, spark: SparkSession, table: str, job: Job) -> None:
    """Run it to its end, shown as the console is made for; then say what was landed.

    Ended by a signal, it exits with the code that all commands have then.
    """
    under_way = tasks_of(spark)
    with _shown(console, under_way) as show, _remarks(show), _Ending(show, under_way) as ending:

        def told(done: BatchDone) -> None:
            show.batch(done)
            if ending.sign is not None:
                ending.event.set()

        landed = job(told, ending.event)
    if not console.as_json:
        console.print(summary(landed, table))
    if ending.sign is not None:
        sys.exit(128 + ending.sign)


def summary(landed: Landed, table: str) -> str:
    """What was landed, in a line."""
    if not landed.batches:
        return f"nothing new for {table}"
    text = f"{count(landed.rows, 'row')} ({amount_of_bytes(landed.bytes)}) to {table}, {count(landed.files, 'file')}"
    if landed.dead_letters:
        text += f", {count(landed.dead_letters, 'dead letter')}"
    batches = f"{landed.batches:,} batch{'' if landed.batches == 1 else 'es'}"
    per_second = f"{landed.rows / max(landed.seconds, 1e-9):,.0f} rows/s"
    took = f"{landed.seconds:.1f} s" if landed.seconds < 60 else duration(landed.seconds)
    return f"{text}, {batches} in {took}: {per_second}"


def _shown(console: Console, under_way: Callable[[], tuple[int, int] | None]) -> Shown:
    if console.as_json:
        return JsonLines(console.print)
    if console.talks:
        try:
            return Bars(Course(), under_way)
        except ImportError:  # without rich
            pass
    return Lines(console.print)


@contextmanager
def _remarks(show: Shown) -> Iterator[None]:
    """What the job logs for its user stands among what is shown, not across it."""

    class Remarks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            show.say(record.getMessage())

    logger = logging.getLogger("ottla_pipeline")
    handler = Remarks(logging.WARNING)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(handler)


class _Ending:
    """Ctrl-C and SIGTERM: the first ends the job after the batch under way, the second at once.

    Set up after the session: Spark has a handler of its own, which would cancel the batch.
    """

    def __init__(self, show: Shown, under_way: Callable[[], tuple[int, int] | None]) -> None:
        self.event = threading.Event()
        self.sign: int | None = None
        self._show = show
        self._under_way = under_way

    def __enter__(self) -> _Ending:
        self._before = {
            each: signal.signal(each, self._signalled) for each in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self.sign is not None:
            raise KeyboardInterrupt
        self.sign = number
        # Not in a signal's handler: it may have come amid a call to Java, or amid drawing.
        threading.Thread(target=self._wait, name="ending", daemon=True).start()

    def _wait(self) -> None:
        """Where no batch is under way there is nothing to wait for. Between its jobs a batch is idle for a moment."""
        self._show.say(_SAID)
        idle = 0
        while idle < _LOOKS and not self.event.is_set():
            idle = idle + 1 if self._under_way() is None else 0
            sleep(_LOOK)
        self.event.set()
