"""Attempts that start one after the other and compete; the first success wins (as in RFC 8305)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class AllFailed(Exception):
    """All attempts failed; ``failures`` has their exceptions by index."""

    def __init__(self, failures: dict[int, Exception]) -> None:
        super().__init__(failures)
        self.failures = failures


async def staggered_race(
    attempts: Sequence[Callable[[], Awaitable[T]]], delay: float, discard: Callable[[T], None]
) -> T:
    """The result of the first attempt that succeeds.

    The next attempt starts when one fails, or ``delay`` seconds after the previous one started. The losing attempts are
    cancelled and awaited; if one succeeds anyway, its result goes to ``discard``. Raises AllFailed.
    """
    failures: dict[int, Exception] = {}
    if len(attempts) == 1:
        try:
            return await attempts[0]()
        except Exception as error:
            raise AllFailed({0: error}) from error
    tasks: dict[asyncio.Future[T], int] = {}
    running: set[asyncio.Future[T]] = set()
    winner: asyncio.Future[T] | None = None
    try:
        while winner is None and (running or len(tasks) < len(attempts)):
            place = len(tasks)
            if place < len(attempts):
                started = asyncio.ensure_future(attempts[place]())
                tasks[started] = place
                running.add(started)
            done, running = await asyncio.wait(
                running,
                timeout=delay if len(tasks) < len(attempts) else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for ended in done:
                failure = ended.exception()
                if failure is None:
                    winner = winner or ended
                elif isinstance(failure, Exception):
                    failures[tasks[ended]] = failure
                else:
                    raise failure
        if winner is None:
            raise AllFailed(failures)
        return winner.result()
    finally:
        for needless in running:
            needless.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for ended in tasks:
            if ended is not winner and not ended.cancelled() and ended.exception() is None:
                discard(ended.result())
