"""Threads for what a stranger's TLS handshake or login costs: signatures and hashes, milliseconds each.

Addresses take turns, so that one which floods keeps no other waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ottla_broker.background import Background
from ottla_broker.client_queue import ClientQueue
from ottla_broker.network.service import client_at

THREADS: Final = 2
_AHEAD: Final = 2 * THREADS
"""Functions that run, or are the next to: a thread that is done needn't wait for the event loop."""


class LoginThreads:
    """Owned by the loop thread."""

    def __init__(self) -> None:
        self._threads = Background(THREADS)
        # By client.
        self._waiting: ClientQueue[tuple[asyncio.Future[Any], Callable[[], Any]]] = ClientQueue()
        self._begun: set[asyncio.Future[Any]] = set()

    def run(self, host: str, function: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        """Run ``function(*args)`` on a thread when it is the turn of the client at that address."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(client_at(host), (future, partial(function, *args)))
        self._begin()
        return future

    def withdraw(self, future: asyncio.Future[Any]) -> None:
        """Cancel a function whose outcome is of no use any more, unless it has begun."""
        if future not in self._begun:
            future.cancel()

    def close(self) -> None:
        """Wait for running functions, and cancel the others."""
        for future, _ in self._waiting:
            future.cancel()
        self._waiting.clear()
        self._threads.close()

    def _begin(self) -> None:
        waiting = self._waiting
        while waiting and len(self._begun) < _AHEAD:
            future, function = waiting.popleft()
            if not future.cancelled():
                self._begun.add(future)
                self._threads.run(function).add_done_callback(partial(self._ended, future))

    def _ended(self, future: asyncio.Future[Any], run: asyncio.Future[Any]) -> None:
        self._begun.discard(future)
        self._begin()
        if future.cancelled():
            return
        if run.cancelled():
            future.cancel()
        elif (error := run.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(run.result())
