"""Runs a landing job, shows its progress, and ends it at a signal."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING

from ottla_cli import Console, amount_of_bytes

from ..progress import Bars, JobProgress, JsonLines, Lines, Shown, count, duration, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..landing import BatchDone, Landed

OnBatch = Callable[["BatchDone"], None]
Job = Callable[[OnBatch, threading.Event], "Landed"]
"""A job: gets a function to call with each batch, and an event that ends it."""


def run_job(console: Console, spark: SparkSession, table: str, job: Job, started_in: float) -> None:
    """Run a job to its end with its progress, then print a summary. ``started_in`` is what Spark took, in seconds.

    If a signal ended it, exit with 128 plus the signal's number.
    """
    with _shown(console, spark) as show, _remarks(show), _Ending(show) as ending:
        landed = job(show.batch, ending.event)
    if not console.as_json:
        console.print(summary(landed, table, started_in))
    if ending.sign is not None:
        sys.exit(128 + ending.sign)


def summary(landed: Landed, table: str, started_in: float) -> str:
    started = f"Spark started in {started_in:.1f} s"
    if not landed.batches:
        return f"nothing new for {table}; {started}"
    text = f"{count(landed.rows, 'row')} ({amount_of_bytes(landed.bytes)}) to {table}, {count(landed.files, 'file')}"
    if landed.dead_letters:
        text += f", {count(landed.dead_letters, 'dead letter')}"
    batches = f"{landed.batches:,} batch{'' if landed.batches == 1 else 'es'}"
    per_second = f"{landed.rows / max(landed.seconds, 1e-9):,.0f} rows/s"
    took = f"{landed.seconds:.1f} s" if landed.seconds < 60 else duration(landed.seconds)
    return f"{text}, {batches} in {took}: {per_second}; {started}"


def _shown(console: Console, spark: SparkSession) -> Shown:
    if console.as_json:
        return JsonLines(console.print)
    if console.talks:
        try:
            return Bars(JobProgress(), tasks_of(spark))
        except ImportError:  # rich is not installed.
            pass
    return Lines(console.print)


@contextmanager
def _remarks(show: Shown) -> Iterator[None]:
    """Show warnings of the job and its client through ``show``, so that they don't break its drawing."""

    class Remarks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            show.say(record.getMessage())

    loggers = [logging.getLogger(name) for name in ("ottla_pipeline", "ottla_client")]
    handler = Remarks(logging.WARNING)
    before = [(logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, (propagates, level) in zip(loggers, before, strict=True):
            logger.propagate = propagates
            logger.setLevel(level)
            logger.removeHandler(handler)


class _Ending:
    """Handles Ctrl-C and SIGTERM: the first ends the job after the current batch, the second at once.

    Enter it after the session starts: Spark's own handler would cancel the batch.
    """

    def __init__(self, show: Shown) -> None:
        self.event = threading.Event()
        self.sign: int | None = None
        self._show = show
        # A signal's handler may interrupt anything, even drawing, so it only puts something into this queue.
        self._news: SimpleQueue[bool] = SimpleQueue()
        self._teller = threading.Thread(target=self._tell, name="ending", daemon=True)

    def __enter__(self) -> _Ending:
        self._teller.start()
        self._before = {
            each: signal.signal(each, self._signalled) for each in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._news.put(False)
        self._teller.join()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self.sign is not None:
            raise KeyboardInterrupt
        self.sign = number
        self._news.put(True)

    def _tell(self) -> None:
        while self._news.get():
            self.event.set()
            self._show.say("ending after the current batch; press Ctrl-C again to end at once")
