"""A store that outlives sessions with ZooKeeper: it uses the current one, and sets its watches in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from ottla_broker.counters import Timings
from ottla_broker.store.api import (
    ANY_VERSION,
    EventKind,
    Operation,
    SessionLostError,
    SessionState,
    StoreEvent,
    StoreFailedError,
    Watch,
)
from ottla_broker.store.zookeeper import ZooKeeperStore


class _Watched:
    """A watch that outlives sessions, and the current session's part of it."""

    def __init__(self, path: str, callback: Callable[[StoreEvent], None]) -> None:
        self.path = path
        self.callback = callback
        self.watch: Watch | None = None


class ReconnectingStore:
    """A :class:`ottla_broker.store.api.Store`. Between two sessions every call raises StoreFailedError.

    Attributes:
        sessions: how many sessions there have been.
        timings: how long requests took that ZooKeeper answered, in the last session.
    """

    def __init__(self) -> None:
        self.sessions = 0
        self.timings = Timings()
        self._store: ZooKeeperStore | None = None
        self._watches: dict[_Watched, None] = {}

    def use(self, store: ZooKeeperStore) -> None:
        """Use a new session. Watches fire, because anything may have happened since the last one."""
        self.sessions += 1
        again = self._store is not None
        self._store = store
        self.timings = store.timings
        for each in list(self._watches):
            each.watch = store.watch(each.path, each.callback)
            if again:
                each.callback(StoreEvent(EventKind.CHANGED, each.path))
                each.callback(StoreEvent(EventKind.CHILDREN, each.path))

    def _now(self) -> ZooKeeperStore:
        store = self._store
        if store is None or store.state is SessionState.LOST:
            raise StoreFailedError("the session with ZooKeeper has ended, and the next one has not begun yet")
        return store

    @property
    def state(self) -> SessionState:
        return SessionState.SUSPENDED if self._store is None else self._store.state

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        return await self._now().create(path, data, ephemeral=ephemeral, sequence=sequence, parents=parents)

    async def get(self, path: str) -> tuple[bytes, int]:
        return await self._now().get(path)

    async def sync(self, path: str) -> None:
        await self._now().sync(path)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        return await self._now().get_many(paths)

    async def created_at(self, path: str) -> int | None:
        return await self._now().created_at(path)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return await self._now().set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._now().delete(path, version)

    async def children(self, path: str) -> list[str]:
        return await self._now().children(path)

    async def exists(self, path: str) -> bool:
        return await self._now().exists(path)

    async def transaction(self, operations: Sequence[Operation]) -> list[str | int | None]:
        return await self._now().transaction(operations)

    def watch(self, path: str, callback: Callable[[StoreEvent], None]) -> Watch:
        watched = _Watched(path, callback)
        self._watches[watched] = None
        with suppress(SessionLostError, StoreFailedError):  # set when the next session begins
            watched.watch = self._now().watch(path, callback)

        def cancel() -> None:
            if watched.watch is not None:
                watched.watch.cancel()
            self._watches.pop(watched, None)

        return Watch(cancel)

    def watch_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return self._now().watch_session(callback)

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()
