"""What is read from the store once more whenever a watch fires."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ottla_broker.events import get_logger
from ottla_broker.store.api import StoreError

if TYPE_CHECKING:
    from ottla_broker.clock import Clock

_log = get_logger()

_AGAIN_SECONDS: Final = 1.0


class Rereading:
    """Reads after each :meth:`wake`, once for all that come while it reads. Owned by the loop thread.

    A read that fails with a StoreError is logged, and repeated after a second.
    """

    def __init__(
        self, clock: Clock, read: Callable[[], Awaitable[None]], failed: str, **about: object
    ) -> None:
        """``failed`` is the event that is logged, with ``about`` and the reason."""
        self._clock = clock
        self._read = read
        self._failed = failed
        self._about = about
        self._news = asyncio.Event()

    def wake(self, _: object = None) -> None:
        """Read again; also the callback of a watch."""
        self._news.set()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._read()
            except StoreError as error:
                _log.warning(self._failed, **self._about, reason=str(error))
                await self._clock.sleep(_AGAIN_SECONDS)
                self._news.set()
