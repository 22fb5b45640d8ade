"""Waiting for changes that Kafka's brokers learn of a moment after the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

T = TypeVar("T")


async def eventually(look: Callable[[], Awaitable[T]], wanted: Callable[[T], object]) -> T:
    """The result of ``look`` once it is as ``wanted``; fails with the last result after a while."""
    deadline = monotonic() + 60
    while not wanted(found := await look()):
        assert monotonic() < deadline, f"after a minute it is still {found!r}"
        await asyncio.sleep(0.02)
    return found
