"""Waiting with a deadline and a message."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable
from typing import IO, TypeVar

T = TypeVar("T")


def readable(file: int | IO[bytes], timeout: float) -> bool:
    """Wait so long, in seconds, for something to read, or for the end; whether it came."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def wait_for(check: Callable[[], T], what: str, timeout: float = 60.0, every: float = 0.02) -> T:
    """Call ``check`` until it gives something true, and return that.

    Fails with ``what`` and the last thing it gave when the time is up; exceptions of ``check`` go through.
    """
    deadline = time.monotonic() + timeout
    while True:
        result = check()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(
                f"after {timeout:g} s still waiting for {what}; the last state was {result!r}"
            )
        time.sleep(every)


async def until(check: Callable[[], object], timeout: float = 60.0, every: float = 0.005) -> None:
    """The same on the event loop, for a condition that the loop's own work brings about."""
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, f"after {timeout:g} s it is still not so"
        await asyncio.sleep(every)
