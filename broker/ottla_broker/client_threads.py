"""Threads for what takes clients' requests long: handshakes, logins, records to check or to convert.

Clients take turns, so that one which floods keeps no other waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final, TypeVar

from ottla_broker.background import Background
from ottla_broker.client_queue import Budget

T = TypeVar("T")

THREADS: Final = 2
_AHEAD: Final = 2 * THREADS
"""Functions that run, or are the next to: a thread that is done needn't wait for the event loop."""


class ClientThreads:
    """Owned by the loop thread."""

    def __init__(self) -> None:
        self._threads = Background(THREADS)
        self._budget: Budget[tuple[asyncio.Future[Any], Callable[[], Any]]] = Budget(_AHEAD, self._begin)
        self._begun: set[asyncio.Future[Any]] = set()

    def run(self, client: Hashable, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run ``function(*args)`` on a thread when it is the client's turn."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._budget.reserve(client, 1, (future, partial(function, *args)))
        return future

    def withdraw(self, future: asyncio.Future[Any]) -> None:
        """Cancel a function whose outcome is of no use any more, unless it has begun."""
        if future not in self._begun:
            future.cancel()

    def close(self) -> None:
        """Wait for running functions, and cancel the others."""
        for future, _ in self._budget.clear():
            future.cancel()
        self._threads.close()

    def _begin(self, item: tuple[asyncio.Future[Any], Callable[[], Any]]) -> bool:
        future, function = item
        if future.cancelled():
            return False
        self._begun.add(future)
        self._threads.run(function).add_done_callback(partial(self._ended, future))
        return True

    def _ended(self, future: asyncio.Future[Any], run: asyncio.Future[Any]) -> None:
        self._begun.discard(future)
        self._budget.release(1)
        if future.cancelled():
            return
        if run.cancelled():
            future.cancel()
        elif (error := run.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(run.result())
