"""Tasks of the event loop that belong to one object and end with it, and loops that let others run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger

_log = get_logger()

T = TypeVar("T")
R = TypeVar("R")

SLICE_SECONDS: Final = 0.003
"""How long work goes on before others on the event loop have their turn, where it looks at the clock."""

Step: TypeAlias = Callable[[], Awaitable[None] | None]
"""A step of the broker's stop, or of a part's."""


async def undo(steps: list[Step]) -> None:
    """Take the steps of a stop, the last first. One that fails is logged: the other parts must be closed anyway."""
    while steps:
        step = steps.pop()
        try:
            if (ending := step()) is not None:
                await ending
        except Exception as error:
            _log.error(
                "a step of the stop failed", step=getattr(step, "__qualname__", str(step)), exc_info=error
            )


class Tasks:
    """Tasks that run until they end or are closed. Owned by the loop thread."""

    def __init__(self) -> None:
        # The event loop itself holds tasks only weakly.
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` as a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def close(self) -> None:
        """Cancel the tasks that run, and wait for their end."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


async def unhurried(items: Iterable[T], portion: int = 100) -> AsyncIterator[T]:
    """The items, with a turn of the event loop between every few."""
    for number, item in enumerate(items):
        if number and number % portion == 0:
            await asyncio.sleep(0)
        yield item


class YieldEvery:
    """Gives the event loop a turn after every ``portion`` of work, which a coroutine counts over several loops."""

    __slots__ = ("_left", "_portion")

    def __init__(self, portion: int) -> None:
        self._portion = self._left = portion

    async def worked(self, amount: int = 1) -> None:
        """Count work that has been done."""
        self._left -= amount
        if self._left <= 0:
            self._left = self._portion
            await asyncio.sleep(0)


class TimeSlice:
    """Says when ``SLICE_SECONDS`` of work have been done since it was made, or begun again."""

    __slots__ = ("_clock", "_end", "_pause")

    def __init__(self, clock: Clock, pause: float = 0.0) -> None:
        """``pause``: the seconds for which :meth:`next` waits; 0: for a turn of the event loop."""
        self._clock = clock
        self._pause = pause
        self.begin()

    def begin(self) -> None:
        self._end = self._clock.monotonic() + SLICE_SECONDS

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() >= self._end

    async def next(self) -> None:
        """Let others have their turn, and begin again."""
        await (self._clock.sleep(self._pause) if self._pause else asyncio.sleep(0))
        self.begin()


def run_whole(steps: Generator[object, None, R]) -> R:
    """Run all steps at once, and return what they return."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        answer: R = end.value
        return answer


def in_slices(work: Generator[object, None, R], cost: int) -> Generator[int, None, R]:
    """A sliced reader, writer or search that yields what a slice costs."""
    try:
        while True:
            next(work)
            yield cost
    except StopIteration as end:
        result: R = end.value
        return result


async def in_pauses(steps: Generator[object, None, R]) -> tuple[R, int]:
    """Run a generator, with a turn of the event loop after each thing that it yields.

    Returns its result, and the number of those pauses.
    """
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1
        await asyncio.sleep(0)
