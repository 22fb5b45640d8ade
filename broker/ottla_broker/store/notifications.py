"""Notifications: sequential nodes under a parent, by which a broker announces its changes to the others.

Kafka: ``ZkNodeChangeNotificationListener``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.store.api import EventKind, NoNodeError, Store, StoreError, StoreEvent
from ottla_broker.store.rereading import Rereading

_log = get_logger()

_KEPT: Final = 500
"""How many notifications to keep. A broker that missed an older one has begun a new session and read everything."""


@dataclass(eq=False)
class Notifications:
    """The notifications under one parent, each processed once. Owned by the loop thread.

    ``_name``: a node's name without its sequence number. ``_process`` gets a notification's path and data.
    """

    _store: Store
    parent: str
    _name: str
    _process: Callable[[str, bytes], Awaitable[None]]
    _seen: int = field(default=-1, init=False)

    async def skip(self) -> None:
        """Skip the existing notifications; the caller then reads everything that they announce. Raises StoreError."""
        self._seen = max(await self._paths(), default=-1)

    async def read(self) -> None:
        """Process new notifications in order, and remove the oldest.

        Raises StoreError; the next call processes the remaining ones.
        """
        paths = await self._paths()
        for number in sorted(number for number in paths if number > self._seen):
            try:
                data, _ = await self._store.get(paths[number])
            except NoNodeError:
                pass  # removed meanwhile, as one of the oldest
            else:
                await self._try_to_process(paths[number], data)
            self._seen = number
        for number in sorted(paths)[:-_KEPT]:
            try:
                await self._store.delete(paths[number])
            except NoNodeError:
                continue

    async def _try_to_process(self, path: str, data: bytes) -> None:
        """A defect that one notification shows must not stop the others."""
        try:
            await self._process(path, data)
        except StoreError:
            raise
        except Exception as error:
            _log.error("a notification is passed over", path=path, exc_info=error)

    async def _paths(self) -> dict[int, str]:
        found = {}
        for each in await self._store.children(self.parent):
            number = each.removeprefix(self._name)
            if number != each and number.isascii() and number.isdigit():
                found[int(number)] = f"{self.parent}/{each}"
        return found


class NotificationListener:
    """Reads notifications as they come, and everything again if some may have been missed."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        sources: Sequence[Notifications],
        load: Callable[[], Awaitable[None]],
        lock: asyncio.Lock,
        failed: str,
    ) -> None:
        """``load`` reads everything; ``lock`` is held meanwhile. ``failed`` is logged when the store can't be read."""
        self._sources = sources
        self._load = load
        self._lock = lock
        self._all_again = False
        self._rereading = Rereading(store, clock, self._read, failed)

    @property
    def is_running(self) -> bool:
        return self._rereading.is_running

    def start(self) -> None:
        self._rereading.start(*(each.parent for each in self._sources), changed=self._on_event)

    async def close(self) -> None:
        await self._rereading.close()

    def _on_event(self, event: StoreEvent) -> None:
        # Nothing changes the data of these nodes: a new session says so, because anything may have changed meanwhile.
        if event.kind is EventKind.CHANGED:
            self._all_again = True
        self._rereading.wake()

    async def _read(self) -> None:
        async with self._lock:
            if self._all_again:
                await self._load()
                self._all_again = False
            else:
                for each in self._sources:
                    await each.read()
