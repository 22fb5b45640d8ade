"""Waits with a deadline and a message."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable
from typing import IO, TypeVar

T = TypeVar("T")

_SOONEST, _LATEST = 0.01, 0.05
"""Seconds between two looks, at first and later."""


def readable(file: int | IO[bytes], timeout: float) -> bool:
    """Wait this many seconds for data or end of file. Returns whether it came."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def wait_for(check: Callable[[], T], what: str, timeout: float = 60.0, every: float | None = None) -> T:
    """Call ``check`` until it returns something true, and return that.

    Waits ``every`` seconds between two calls; without it 10 ms at first and later 50, so that a long wait takes little
    of the processor. Fails after ``timeout`` seconds with ``what`` and the last result. Exceptions of ``check``
    propagate.
    """
    deadline = time.monotonic() + timeout
    pause = _SOONEST if every is None else every
    while True:
        result = check()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(
                f"after {timeout:g} s still waiting for {what}; the last state was {result!r}"
            )
        time.sleep(pause)
        if every is None:
            pause = min(pause * 1.2, _LATEST)


async def until(check: Callable[[], object], timeout: float = 60.0, every: float = 0.005) -> None:
    """Like ``wait_for``, on the event loop."""
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, f"after {timeout:g} s it is still not so"
        await asyncio.sleep(every)
