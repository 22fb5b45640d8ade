"""Long requests take turns with everything else on the event loop.

A request with very many elements is decoded, handled and answered by a generator that yields how much it has done since
it last yielded. One turn of the loop does ``TURN`` of that, about five milliseconds, and then the sockets and timers of
all other clients come first. Jobs are worked off one after another, so that only one request at a time is decoded.

Small requests never get here. A handler that may loop over many elements is a generator too: its first ``AT_ONCE``
elements are served at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

Steps: TypeAlias = Generator[int, None, R]
"""A handler's work: yields how many elements it has served since it last yielded, and returns its answer."""

Job = Generator[int, None, None]
"""Yields how many elements' worth of work it has done: one takes some microseconds."""

TURN: Final = 1_000
"""The work of one turn, in elements."""
AT_ONCE: Final = 500
"""The work that a request may do before it has to take turns, in elements."""
CODED: Final = 100
"""The work of one slice of a sliced reader or writer, in elements of a handler."""


class Turns:
    """Runs jobs, one slice in a turn of the event loop. Owned by the loop thread.

    Attributes:
        longest: the most work that one turn has done; for tests.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._jobs: deque[Job] = deque()
        self._running = False
        self.longest = 0

    def start(self, job: Job) -> None:
        """Work off ``job``, which raises nothing, after those before it."""
        self._jobs.append(job)
        self._schedule()

    def close(self) -> None:
        """End all jobs."""
        for job in self._jobs:
            job.close()
        self._jobs.clear()

    def _schedule(self) -> None:
        if not self._running:
            self._running = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        done = 0
        try:
            while self._jobs and done < TURN:
                try:
                    done += next(self._jobs[0])
                except StopIteration:
                    self._jobs.popleft()
        finally:
            # Also after a defect: the other jobs go on, and this one has ended.
            self.longest = max(self.longest, done)
            self._running = bool(self._jobs)
            if self._running:
                self._call_soon(self._turn)


def at_once(steps: Generator[int, None, Any]) -> tuple[bool, Any]:
    """Run the beginning of a handler. Returns whether that was all, and what it returned."""
    done = 0
    try:
        while done < AT_ONCE:
            done += next(steps)
    except StopIteration as end:
        return True, end.value
    return False, None


def run_whole(steps: Generator[object, None, R]) -> R:
    """Run all steps at once, and return what they return."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        answer: R = end.value
        return answer


async def in_pauses(steps: Generator[int, None, R]) -> R:
    """Run the steps with a turn of the event loop after every few hundred elements."""
    while True:
        finished, answer = at_once(steps)
        if finished:
            result: R = answer
            return result
        await asyncio.sleep(0)


def whole(steps: Callable[P, Generator[int, None, R]]) -> Callable[P, R]:
    """The handler that runs all its steps at once."""

    @wraps(steps)
    def handle(*args: P.args, **kwargs: P.kwargs) -> R:
        return run_whole(steps(*args, **kwargs))

    return handle
