"""Threads that convert records between message formats for old clients, and what bounds their work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Final, TypeVar

from ottla_broker.background import Background

T = TypeVar("T")

THREADS: Final = 2
_PAUSE_SECONDS: Final = 0.0002
"""Long enough for the event loop to wake up; see :mod:`ottla_broker.log.cleaner.pace`."""


class ConversionsStopped(Exception):
    """The broker stops: the conversion is given up."""


class Conversions:
    """Runs conversions on threads of their own, which the first one starts.

    Owned by the loop thread, except for :meth:`pause`. A broker without old clients has neither threads nor anything
    else of this.

    Attributes:
        waiting_bytes: bytes of records that wait for their conversion.
    """

    def __init__(self) -> None:
        self._background: Background | None = None
        self._for_consumers: Background | None = None
        self._stopping = Event()

    def run(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run ``function(*args)``, which touches nothing that the loop changes, on a thread."""
        if self._background is None:
            self._background = Background(THREADS)
        return self._background.run(function, *args)

    def run_for_consumer(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """The same on other threads: old consumers, however many, don't hold up producers."""
        if self._for_consumers is None:
            self._for_consumers = Background(THREADS)
        return self._for_consumers.run(function, *args)

    def pause(self) -> None:
        """Let other threads run; called from a conversion every few hundred records.

        Raises ConversionsStopped when the broker stops.
        """
        if self._stopping.wait(_PAUSE_SECONDS):
            raise ConversionsStopped

    def close(self) -> None:
        """Give up what is under way."""
        self._stopping.set()
        for background in (self._background, self._for_consumers):
            if background is not None:
                background.close()
