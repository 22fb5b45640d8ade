"""Threads that check records or convert them between message formats, and what bounds their work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from threading import Event
from typing import Final, TypeVar

from ottla_broker.client_threads import ClientThreads

T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.0002
"""Long enough for the event loop to wake up; see :mod:`ottla_broker.log.cleaner.pace`."""


class ConversionsStopped(Exception):
    """The broker stops: the conversion is given up."""


class Conversions:
    """Runs conversions on threads of their own, which the first one starts. Clients take turns.

    Owned by the loop thread, except for :meth:`pause`. A broker without old clients has neither threads nor anything
    else of this.
    """

    def __init__(self) -> None:
        self._for_producers: ClientThreads | None = None
        self._for_consumers: ClientThreads | None = None
        self._stopping = Event()

    def run(self, client: Hashable, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run ``function(*args)``, which touches nothing that the loop changes, on a thread."""
        if self._for_producers is None:
            self._for_producers = ClientThreads()
        return self._for_producers.run(client, function, *args)

    def run_for_consumer(
        self, client: Hashable, function: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        """The same on other threads: old consumers, however many, don't hold up producers."""
        if self._for_consumers is None:
            self._for_consumers = ClientThreads()
        return self._for_consumers.run(client, function, *args)

    def pause(self) -> None:
        """Let other threads run; called from a conversion every few hundred records.

        Raises ConversionsStopped when the broker stops.
        """
        if self._stopping.wait(_PAUSE_SECONDS):
            raise ConversionsStopped

    def close(self) -> None:
        """Give up what is under way."""
        self._stopping.set()
        for threads in (self._for_producers, self._for_consumers):
            if threads is not None:
                threads.close()
