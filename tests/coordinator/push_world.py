"""A coordinator of the 2012 design with modelled consumers, on a store in memory and on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

from tests.support.clock import FakeClock

from ottla_broker.coordinator.push.coordinator import PushCoordinator, PushEnvironment, PushSettings
from ottla_broker.coordinator.push.rebalancer import RebalanceSettings
from ottla_broker.coordinator.push.registry import GroupRegistry
from ottla_broker.store.api import (
    Create,
    Delete,
    EventKind,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionState,
    Set,
    Store,
    StoreEvent,
    StoreFailedError,
    Watch,
)
from ottla_broker.store.keys import Assignment, TopicNode
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.push import (
    MAX_REGISTRATION,
    Broker,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
    decode_push,
)

SESSION = 6.0


class MemoryStore:
    """An ``ottla_broker.store.api.Store`` without a disk.

    ``failing``: every call raises. ``gate``: if there is one, calls of ``children`` and ``transaction`` wait for it.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {"/": b""}
        self.failing = False
        self.gate: asyncio.Event | None = None
        self.state = SessionState.CONNECTED
        self.sessions: dict[str, object] = {}
        """Whose session an ephemeral node belongs to, where a test has sessions."""
        self._watches: list[tuple[str, Callable[[StoreEvent], None]]] = []
        self._calls: Counter[str] = Counter()

    def count(self, name: str) -> int:
        """How often ``children`` or ``transaction`` was called from outside."""
        return self._calls[name]

    async def _called(self, name: str) -> None:
        self._calls[name] += 1
        if self.gate is not None:
            await self.gate.wait()

    def _check(self) -> None:
        if self.failing:
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
        parent = path.rpartition("/")[0] or "/"
        if parent not in self.nodes:
            if not parents:
                raise NoNodeError(parent)
            await self.create(parent, parents=True)
        if path in self.nodes:
            raise NodeExistsError(path)
        self.nodes[path] = data
        self._fire(EventKind.CREATED, path)
        self._fire(EventKind.CHILDREN, parent)
        return path

    async def get(self, path: str) -> tuple[bytes, int]:
        self._check()
        if path not in self.nodes:
            raise NoNodeError(path)
        return self.nodes[path], 0

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        await self.get(path)
        self.nodes[path] = data
        self._fire(EventKind.CHANGED, path)
        return 0

    async def delete(self, path: str, version: int = -1) -> None:
        await self.get(path)
        if self._names(path):
            raise NotEmptyError(path)
        self.drop(path)

    def drop(self, path: str) -> None:
        """Remove a node, also while the store fails."""
        del self.nodes[path]
        self.sessions.pop(path, None)
        self._fire(EventKind.DELETED, path)
        self._fire(EventKind.CHILDREN, path.rpartition("/")[0] or "/")

    async def children(self, path: str) -> list[str]:
        await self._called("children")
        await self.get(path)
        return self._names(path)

    def _names(self, path: str) -> list[str]:
        top = path.rstrip("/") + "/"
        return sorted(
            {node[len(top) :] for node in self.nodes if node.startswith(top) and "/" not in node[len(top) :]}
            - {""}
        )

    async def exists(self, path: str) -> bool:
        self._check()
        return path in self.nodes

    async def transaction(self, operations: Sequence[Operation]) -> list[str | int | None]:
        await self._called("transaction")
        before = dict(self.nodes)
        try:
            for each in operations:
                if isinstance(each, Create):
                    await self.create(each.path, each.data)
                elif isinstance(each, Set):
                    await self.set(each.path, each.data)
                elif isinstance(each, Delete):
                    await self.delete(each.path)
        except Exception:
            self.nodes = before
            raise
        return [None] * len(operations)

    @property
    def watches(self) -> int:
        """How many watches there are."""
        return len(self._watches)

    def touch(self, path: str) -> None:
        """Have the watches of a node fire, as in a new session."""
        self._fire(EventKind.CHILDREN, path)

    def watch(self, path: str, callback: Callable[[StoreEvent], None]) -> Watch:
        entry = (path, callback)
        self._watches.append(entry)
        return Watch(lambda: self._watches.remove(entry) if entry in self._watches else None)

    def watch_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return Watch(lambda: None)

    async def close(self) -> None:
        """Nothing is open."""

    def _fire(self, kind: EventKind, path: str) -> None:
        for watched, callback in tuple(self._watches):
            if watched == path:
                callback(StoreEvent(kind, path))


class Consumer:
    """A modelled consumer and its channel. It reads nothing once it has heard nothing for two thirds of its session."""

    def __init__(self, world: World, name: str, topics: str, *, group: str = "g") -> None:
        self.world = world
        self.name = name
        self.group = group
        self.topics = topics
        self.limit = MAX_REGISTRATION
        self.client_host = name
        self.connected = False
        self.frozen = False
        self.ignores: set[type] = set()
        self.received: list[object] = []
        self.refused: KafkaError | None = None
        self.reasons: list[str] = []
        self.coordinator = world.coordinator
        """The one that it has registered with."""
        self._unread: list[bytes] = []
        self._share: dict[tuple[str, int], int] = {}
        self._left_at: dict[tuple[str, int], int] = {}
        """Where it was when the connection broke, which it reports to the next coordinator."""
        self._heard = 0.0

    @property
    def peer(self) -> str:
        return f"{self.name}:1"

    @property
    def is_silent(self) -> bool:
        """Whether it has heard nothing for so long that it must not read."""
        return self.world.clock.monotonic() - self._heard >= SESSION * 2 / 3

    @property
    def reading(self) -> set[tuple[str, int]]:
        return set() if self.is_silent else set(self._share)

    async def register(self, session_ms: int = int(SESSION * 1000), reset: str = "smallest") -> None:
        self.refused = None
        self._share = {}
        self._unread.clear()
        request = RegisterConsumerRequest(self.group, self.name, self.topics, True, reset, session_ms)
        found = self.world.find()
        if found is None:
            self.refused = KafkaError(ErrorCode.NOT_COORDINATOR)
            return
        coordinator = self.coordinator = found
        self.connected = True
        self._heard = self.world.clock.monotonic()
        try:
            await coordinator.register(self, request)
        except KafkaError as error:
            self.refused = error
            self.connected = False
            return
        coordinator.registered(self)

    def send(self, frame: bytes) -> None:
        if self.connected:
            self._unread.append(frame[4:])
            if not self.frozen:
                asyncio.get_running_loop().call_soon(self.work)

    def work(self) -> None:
        """Answer what has come."""
        while self._unread and self.connected and not self.frozen:
            message = decode_push(self._unread.pop(0))
            self.received.append(message)
            self._heard = self.world.clock.monotonic()
            if type(message) in self.ignores:
                continue
            self.answer(message)

    def answer(self, message: object) -> None:
        coordinator = self.coordinator
        if isinstance(message, PingRequest):
            coordinator.handle(self, PingResponse(0, self.name, self._offsets()))
        elif isinstance(message, StopFetcherRequest):
            self._share, self._left_at = {**self._left_at, **self._share}, {}
            offsets = self._offsets()
            self._share = {}
            coordinator.handle(self, StopFetcherResponse(0, self.name, offsets))
        elif isinstance(message, StartFetcherRequest):
            self._share = {
                (each.topic, each.partition): each.offset
                for owned in message.ownership
                for each in owned.partitions
            }
            coordinator.handle(self, StartFetcherResponse(0, self.name))

    def read(self, count: int) -> None:
        """Take some records of every partition."""
        for partition in self._share:
            self._share[partition] = max(0, self._share[partition]) + count

    def _offsets(self) -> tuple[PartitionOffset, ...]:
        return tuple(PartitionOffset(*each, offset) for each, offset in self._share.items() if offset >= 0)

    def thaw(self) -> None:
        self.frozen = False
        if not self.connected or not self.reading:
            self.leave()
        self.work()

    def close(self, reason: str) -> None:
        """The coordinator closes the connection."""
        self.reasons.append(reason)
        self.connected = False
        self._unread.clear()
        if not self.frozen:
            self._left_at |= self._share
            self._share = {}

    def leave(self) -> None:
        """The consumer's process ends."""
        self._share = {}
        self._unread.clear()
        if self.connected:
            self.connected = False
            self.coordinator.disconnected(self)


class World:
    """The store, the clock, one coordinator after another, and consumers by name."""

    def __init__(self, **settings: int) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.consumers: dict[str, Consumer] = {}
        self.holders: dict[str, str] = {}
        self.elsewhere: dict[str, str] = {}
        self.forbidden: set[str] = set()
        self.at_work: Counter[GroupRegistry] = Counter()
        """How many handlers rebalance a group now."""
        self.most_at_work = 0
        self.removed_at_work = 0
        """How often a handler has taken up a group that its coordinator no longer has."""
        self._settings = PushSettings(
            RebalanceSettings(settings.get("handlers", 2), settings.get("max_retries", 2), 2.0),
            6000,
            1_800_000,
            settings.get("max_failed_pings", 0),
            10.0,
            settings.get("max_consumers", 100),
        )
        self.coordinator = self._new()

    def _new(self, store: Store | None = None, broker_id: int = 1) -> PushCoordinator:
        environment = PushEnvironment(
            lambda: (Broker(1, "127.0.0.1", 9092),),
            self.holders.get,
            self._elsewhere,
            lambda _, group: group not in self.forbidden,
            lambda _, topic: topic not in self.forbidden,
            broker_id,
        )
        made = PushCoordinator(self._settings, self.clock, store or self.store, environment)
        rebalance = made.rebalancer._rebalance

        async def one_at_a_time(group: GroupRegistry) -> float | None:
            self.removed_at_work += made.groups.get(group.group_id) is not group
            self.at_work[group] += 1
            self.most_at_work = max(self.most_at_work, self.at_work[group])
            try:
                return await rebalance(group)
            finally:
                self.at_work[group] -= 1

        made.rebalancer._rebalance = one_at_a_time  # type: ignore[method-assign]
        return made

    def find(self) -> PushCoordinator | None:
        """The coordinator, as the brokers name it to a consumer; None while they name none."""
        return self.coordinator

    async def _elsewhere(self, group_id: str) -> str | None:
        return self.elsewhere.get(group_id)

    async def __aenter__(self) -> World:
        await self.store.create("/brokers/topics", parents=True)
        self.coordinator.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.coordinator.stop()

    async def fail_over(self) -> None:
        """The coordinator dies, and another broker takes over."""
        await self.coordinator.stop()
        self.coordinator = self._new()
        self.coordinator.start()

    async def topic(self, name: str, partitions: int) -> None:
        """Create a topic, or give it more partitions."""
        data = TopicNode.encode(None, {index: Assignment([1], (), ()) for index in range(partitions)})
        path = TopicNode.path(name)
        failing, self.store.failing = self.store.failing, False
        if path in self.store.nodes:
            await self.store.set(path, data)
        else:
            await self.store.create(path, data)
        self.store.failing = failing

    async def consumer(self, name: str, topics: str = '{"t":1}', *, group: str = "g") -> Consumer:
        """Start a consumer."""
        consumer = self.consumers[name] = Consumer(self, name, topics, group=group)
        await consumer.register()
        return consumer

    async def pass_time(self, seconds: float) -> None:
        """Let time go by; after each step no partition is read twice."""
        step = 1.0
        while seconds > 0:
            await self.clock.elapse(min(step, seconds))
            seconds -= step
            self.check()

    def check(self) -> None:
        """No partition has two readers in a group; one handler at a time works on a group, none on a removed one."""
        assert self.most_at_work <= 1
        assert not self.removed_at_work
        for group in {each.group for each in self.consumers.values()}:
            readers: dict[tuple[str, int], str] = {}
            for each in self.consumers.values():
                for partition in each.reading if each.group == group else ():
                    assert partition not in readers, (partition, readers[partition], each.name)
                    readers[partition] = each.name

    def readers(self, group: str = "g") -> dict[tuple[str, int], str]:
        return {
            partition: each.name
            for each in self.consumers.values()
            if each.group == group
            for partition in each.reading
        }

    def owners(self, group: str = "g") -> dict[tuple[str, int], str]:
        """The registered ownership."""
        top = f"/consumers/{group}/owners/"
        found = {}
        for path, data in self.store.nodes.items():
            if path.startswith(top) and path[len(top) :].count("/") == 1:
                topic, number = path[len(top) :].split("/")
                found[topic, int(number)] = data.decode()
        return found

    def offset(self, topic: str, partition: int, group: str = "g") -> int | None:
        data = self.store.nodes.get(f"/consumers/{group}/offsets/{topic}/{partition}")
        return None if data is None else int(data)


Test = Callable[..., Coroutine[Any, Any, None]]


def run(test: Test) -> Callable[..., None]:
    @wraps(test)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return wrapped
