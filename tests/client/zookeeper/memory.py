"""ZooKeeper in memory: nodes, sessions and watches, with every request and event in the test's hands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla_client.zookeeper_consumer.registry import OnChange


@dataclass
class Node:
    data: bytes
    session: int | None = None


@dataclass
class Server:
    """The tree. ``pending`` are requests that nothing has answered yet, ``events`` those on the way to clients."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pending: list[tuple[Memory, asyncio.Future[Any], Callable[[], Any]]] = field(default_factory=list)
    events: list[tuple[Memory, OnChange]] = field(default_factory=list)
    sessions: int = 0
    _data_watches: dict[str, dict[tuple[Memory, OnChange], None]] = field(default_factory=dict)
    _child_watches: dict[str, dict[tuple[Memory, OnChange], None]] = field(default_factory=dict)

    def put(self, path: str, data: bytes, session: int | None = None) -> None:
        """Create or change a node, with the nodes above it."""
        parent = path.rpartition("/")[0]
        if parent and parent not in self.nodes:
            self.put(parent, b"")
        new = path not in self.nodes
        self.nodes[path] = Node(data, session if new else self.nodes[path].session)
        self._changed(path, self._data_watches)
        if new:
            self._changed(path, self._child_watches)  # those that wait for it
            self._changed(parent, self._child_watches)

    def remove(self, path: str) -> None:
        assert not any(each.startswith(f"{path}/") for each in self.nodes)
        del self.nodes[path]
        self._changed(path, self._data_watches)
        self._changed(path.rpartition("/")[0], self._child_watches)

    def expire(self, session: int) -> None:
        """End a session: its ephemeral nodes go."""
        for path in [path for path, node in self.nodes.items() if node.session == session]:
            self.remove(path)

    def children(self, path: str) -> list[str]:
        start = f"{path}/"
        return sorted(
            each.removeprefix(start)
            for each in self.nodes
            if each.startswith(start) and "/" not in each.removeprefix(start)
        )

    def _changed(self, path: str, watches: dict[str, dict[tuple[Memory, OnChange], None]]) -> None:
        self.events += watches.pop(path, {})

    def watch_data(self, path: str, who: Memory, watch: OnChange | None) -> None:
        if watch is not None:
            self._data_watches.setdefault(path, {})[who, watch] = None

    def watch_children(self, path: str, who: Memory, watch: OnChange | None) -> None:
        if watch is not None:
            self._child_watches.setdefault(path, {})[who, watch] = None

    def step(self, index: int) -> None:
        """Carry out one request. Its session gets the events before it first, as ZooKeeper promises."""
        who, future, request = self.pending.pop(index % len(self.pending))
        if future.done():
            return  # its caller was cancelled
        result = request()
        for event in [each for each in self.events if each[0] is who]:
            self.deliver(self.events.index(event))
        future.set_result(result)

    def deliver(self, index: int) -> None:
        who, watch = self.events.pop(index % len(self.events))
        if who.alive:
            watch()


class Memory:
    """One client's session, as `Registry`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.alive = True
        self.on_lost: Callable[[], None] = lambda: None
        self.on_session: Callable[[], None] = lambda: None
        server.sessions += 1
        self.session = server.sessions

    def expire(self) -> None:
        """ZooKeeper ends the session, the client notices, and begins another one."""
        self.server.expire(self.session)
        self.server.sessions += 1
        self.session = self.server.sessions
        self.on_lost()
        self.on_session()

    async def ask(self, request: Callable[[], Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.server.pending.append((self, future, request))
        return await future

    async def read(self, path: str, watch: OnChange | None = None) -> bytes | None:
        def request() -> bytes | None:
            self.server.watch_data(path, self, watch)
            node = self.server.nodes.get(path)
            return None if node is None else node.data

        found: bytes | None = await self.ask(request)
        return found

    async def children(self, path: str, watch: OnChange | None = None) -> list[str]:
        def request() -> list[str]:
            self.server.watch_children(path, self, watch)
            return self.server.children(path)

        found: list[str] = await self.ask(request)
        return found

    async def claim(self, path: str, data: bytes) -> bool:
        def request() -> bool:
            node = self.server.nodes.get(path)
            if node is not None and node.session != self.session:
                return False
            self.server.put(path, data, self.session)
            return True

        return bool(await self.ask(request))

    async def release(self, path: str) -> None:
        def request() -> None:
            node = self.server.nodes.get(path)
            if node is not None and node.session == self.session:
                self.server.remove(path)

        await self.ask(request)

    async def remove_persistent(self, path: str) -> bool:
        def request() -> bool:
            node = self.server.nodes.get(path)
            if node is None or node.session is not None:
                return False
            self.server.remove(path)
            return True

        return bool(await self.ask(request))

    async def write(self, path: str, data: bytes) -> None:
        await self.ask(lambda: self.server.put(path, data))

    async def remove_tree(self, path: str) -> None:
        def request() -> None:
            for each in sorted(self.server.nodes, reverse=True):
                if each == path or each.startswith(f"{path}/"):
                    self.server.remove(each)

        await self.ask(request)
