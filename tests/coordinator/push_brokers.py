"""Brokers that elect the coordinator of 2012 among themselves, each with a session of its own with one store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tests.coordinator.push_world import Consumer, MemoryStore, World
from tests.support.clock import FakeClock

from ottla_broker.coordinator.push.coordinator import PushCoordinator
from ottla_broker.coordinator.push.elector import Elector
from ottla_broker.store.api import EventKind, Operation, SessionState, StoreEvent, StoreFailedError, Watch
from ottla_broker.tasks import Tasks

DOUBT_SECONDS = 1.5
"""As of a session timeout of 6 s."""
LEFT_SECONDS = 2.0
"""How long a session lasts when its broker notices that the connection has broken, which takes two thirds of it."""


class Session:
    """A broker's ``Store``, which goes on with a new session after one has ended."""

    def __init__(self, tree: MemoryStore, clock: FakeClock) -> None:
        self.state = SessionState.CONNECTED
        self._tree = tree
        self._clock = clock
        self._id = object()
        self._ended = False
        self._watches: dict[object, tuple[str, Callable[[StoreEvent], None]]] = {}
        self._callbacks: dict[object, Callable[[SessionState], None]] = {}

    # What happens to it

    def cut(self) -> None:
        """The connection breaks; the store ends the session unless it comes back soon."""
        if self.state is SessionState.CONNECTED:
            self._become(SessionState.SUSPENDED)
            self._clock.call_later(LEFT_SECONDS, self._end, self._id)

    def _end(self, session: object) -> None:
        if session is not self._id or self.state is SessionState.CONNECTED:
            return
        self._ended = True
        for path in [path for path, owner in self._tree.sessions.items() if owner is session]:
            self._tree.drop(path)

    def heal(self) -> None:
        """There is a connection again. Watches fire, because changes may have been missed."""
        if self.state is SessionState.CONNECTED:
            return
        if self._ended:
            self._become(SessionState.LOST)
            self._callbacks.clear()
            self._id, self._ended = object(), False
            self.state = SessionState.CONNECTED
        else:
            self._id, before = object(), self._id
            for path, owner in self._tree.sessions.items():
                if owner is before:
                    self._tree.sessions[path] = self._id
            self._become(SessionState.CONNECTED)
        for path, callback in list(self._watches.values()):
            callback(StoreEvent(EventKind.CHANGED, path))
            callback(StoreEvent(EventKind.CHILDREN, path))

    def die(self) -> None:
        """The broker's process has ended, and its session does so a while later."""
        self._callbacks.clear()
        self._watches.clear()
        self.cut()

    def _become(self, state: SessionState) -> None:
        self.state = state
        for callback in list(self._callbacks.values()):
            callback(state)

    # Store

    def _check(self) -> None:
        if self.state is not SessionState.CONNECTED:
            raise StoreFailedError("the store doesn't answer")

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        self._check()
        made = await self._tree.create(path, data, ephemeral=ephemeral, parents=parents)
        if ephemeral:
            self._tree.sessions[path] = self._id
        return made

    async def get(self, path: str) -> tuple[bytes, int]:
        self._check()
        return await self._tree.get(path)

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        self._check()
        return await self._tree.set(path, data, version)

    async def delete(self, path: str, version: int = -1) -> None:
        self._check()
        await self._tree.delete(path, version)

    async def children(self, path: str) -> list[str]:
        self._check()
        return await self._tree.children(path)

    async def exists(self, path: str) -> bool:
        self._check()
        return await self._tree.exists(path)

    async def transaction(self, operations: Sequence[Operation]) -> list[str | int | None]:
        self._check()
        return await self._tree.transaction(operations)

    def watch(self, path: str, callback: Callable[[StoreEvent], None]) -> Watch:
        def heard(event: StoreEvent) -> None:
            if self.state is SessionState.CONNECTED:
                callback(event)

        key = object()
        self._watches[key] = (path, heard)
        inner = self._tree.watch(path, heard)

        def cancel() -> None:
            self._watches.pop(key, None)
            inner.cancel()

        return Watch(cancel)

    def watch_session(self, callback: Callable[[SessionState], None]) -> Watch:
        key = object()
        self._callbacks[key] = callback
        return Watch(lambda: self._callbacks.pop(key, None))

    async def close(self) -> None:
        """Nothing is open."""


class Candidate:
    """A broker: its elector, and its coordinator, which runs while it is elected."""

    def __init__(self, world: Brokers, number: int) -> None:
        self.number = number
        self.alive = True
        self.session = Session(world.store, world.clock)
        self.coordinator = world._new(self.session, number)
        self.elector = Elector(
            self.session, number, world.clock, DOUBT_SECONDS, self._elected, lambda _: self._resigned()
        )
        self._tasks = Tasks()
        self._changing = asyncio.Lock()
        self.elector.start()

    def _elected(self) -> None:
        self._tasks.start(self._begin())

    def _resigned(self) -> None:
        self._tasks.start(self._end())

    async def _begin(self) -> None:
        async with self._changing:
            if self.elector.leading:
                self.coordinator.start()

    async def _end(self) -> None:
        async with self._changing:
            await self.coordinator.stop()

    async def stop(self) -> None:
        self.alive = False
        await self.elector.close()
        await self._tasks.close()
        await self.coordinator.stop()

    async def die(self) -> None:
        """Without a word to the store; the connections of its consumers break."""
        self.session.die()
        await self.stop()


class Brokers(World):
    """Three brokers, and consumers that register again when they are disconnected, where one of them says."""

    def __init__(self, **settings: int) -> None:
        super().__init__(**settings)
        self.brokers: list[Candidate] = []
        self.gone: set[Consumer] = set()
        self._asked = 0

    async def __aenter__(self) -> Brokers:
        await self.store.create("/brokers/topics", parents=True)
        self.brokers = [Candidate(self, number) for number in range(3)]
        await self.clock.elapse(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers:
            await broker.stop()

    def find(self) -> PushCoordinator | None:
        self._asked += 1
        asked = self.brokers[self._asked % len(self.brokers)]
        named = asked.elector.coordinator_id if asked.alive else -1
        if named < 0 or not self.brokers[named].alive or not self.brokers[named].elector.leading:
            return None
        return self.brokers[named].coordinator

    @property
    def leaders(self) -> list[Candidate]:
        return [each for each in self.brokers if each.elector.leading]

    async def restart(self, number: int) -> None:
        if not self.brokers[number].alive:
            self.brokers[number] = Candidate(self, number)
            await self.clock.elapse(0)

    async def pass_time(self, seconds: float) -> None:
        while seconds > 0:
            await super().pass_time(min(0.5, seconds))
            seconds -= 0.5
            assert len(self.leaders) <= 1
            for consumer in self.consumers.values():
                if consumer.frozen or consumer in self.gone:
                    continue
                if consumer.connected and consumer.is_silent:
                    consumer.leave()
                if not consumer.connected:
                    await consumer.register()
            self.check()
