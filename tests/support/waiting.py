"""Waits with a deadline and a message."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable
from typing import IO, TypeVar

T = TypeVar("T")


def readable(file: int | IO[bytes], timeout: float) -> bool:
    """Wait this many seconds for data or end of file. Returns whether it came."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def wait_for(check: Callable[[], T], what: str, timeout: float = 60.0, every: float = 0.02) -> T:
    """Call ``check`` until it returns something true, and return that.

    Fails after ``timeout`` seconds with ``what`` and the last result. Exceptions of ``check`` propagate.
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
    """Like ``wait_for``, on the event loop."""
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, f"after {timeout:g} s it is still not so"
        await asyncio.sleep(every)
