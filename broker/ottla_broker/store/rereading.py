"""Reads from the store again whenever a watch fires."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.store.api import Store, StoreError, StoreEvent, Watch
from ottla_broker.tasks import Tasks

_log = get_logger()

_RETRY_SECONDS: Final = 1.0


class Rereading:
    """Reads again after the watched nodes change; all changes during a read lead to one more read.

    Owned by the loop thread. It may be started again after it was closed.

    A read that fails with a StoreError is logged, and repeated after a second. One that a defect ends is logged, and
    the next change is read.
    """

    def __init__(
        self, store: Store, clock: Clock, read: Callable[[], Awaitable[None]], failed: str, **about: object
    ) -> None:
        """``failed`` is the event that is logged, with ``about`` and the reason."""
        self._store = store
        self._clock = clock
        self._read = read
        self._failed = failed
        self._about = about
        self._news = asyncio.Event()
        self._watches: list[Watch] = []
        self._tasks = Tasks()

    @property
    def is_running(self) -> bool:
        return bool(self._watches)

    def start(self, *paths: str, changed: Callable[[StoreEvent], None] | None = None) -> None:
        """Watch these nodes, and read now and after each change.

        ``changed`` is called for each event instead of :meth:`wake`, which it then has to call.
        """
        self._watches = [self._store.watch(path, changed or self.wake) for path in paths]
        self.wake()
        self._tasks.start(self._run())

    async def close(self) -> None:
        """Stop, and cancel a read that is under way."""
        await self._tasks.close()
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()

    def wake(self, _: object = None) -> None:
        """Read again."""
        self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._read()
            except StoreError as error:
                _log.warning(self._failed, **self._about, reason=str(error))
                await self._clock.sleep(_RETRY_SECONDS)
                self._news.set()
            except Exception as error:
                _log.error(self._failed, **self._about, exc_info=error)
