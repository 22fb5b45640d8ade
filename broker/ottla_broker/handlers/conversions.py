"""Threads that convert records between message formats for old clients, and what bounds their work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Any, Final, TypeVar

from ottla_broker.background import Background

T = TypeVar("T")

THREADS: Final = 2
_PAUSE_SECONDS: Final = 0.0002
"""Long enough for the event loop to wake up; see :mod:`ottla_broker.log.cleaner.pace`."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of records that may wait for their conversion. They are copies, which the memory of requests doesn't count."""


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
        # By connection: done when its last request that waits for a conversion has been handled.
        self._last: dict[str, asyncio.Future[None]] = {}
        self.waiting_bytes = 0

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

    def is_waiting(self, connection_id: str) -> bool:
        """Whether a request of the connection waits for a conversion, so that later ones have to wait too."""
        return connection_id in self._last

    def reserve(self, connection_id: str, size: int) -> Turn | None:
        """Get in line behind the connection's earlier requests, with ``size`` bytes of records; None: too many wait."""
        if self.waiting_bytes and self.waiting_bytes + size > MAX_WAITING_BYTES:
            return None
        self.waiting_bytes += size
        previous = self._last.get(connection_id)
        done = asyncio.get_running_loop().create_future()
        self._last[connection_id] = done
        return Turn(self, connection_id, size, previous, done)

    def release(self, turn: Turn) -> None:
        """Let the connection's next request go on."""
        self.waiting_bytes -= turn.size
        if self._last.get(turn.connection_id) is turn.done:
            del self._last[turn.connection_id]
        if not turn.done.done():
            turn.done.set_result(None)

    def close(self) -> None:
        """Give up what is under way."""
        self._stopping.set()
        for background in (self._background, self._for_consumers):
            if background is not None:
                background.close()


class Turn:
    """A request's place among those of its connection."""

    def __init__(
        self,
        conversions: Conversions,
        connection_id: str,
        size: int,
        previous: asyncio.Future[None] | None,
        done: asyncio.Future[None],
    ) -> None:
        self._conversions = conversions
        self.connection_id = connection_id
        self.size = size
        self.previous = previous
        self.done = done

    async def __aenter__(self) -> None:
        if self.previous is not None:
            await asyncio.wait([self.previous])

    async def __aexit__(self, *_: Any) -> None:
        self._conversions.release(self)
