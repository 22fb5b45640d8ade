"""A network between brokers, and between brokers and ZooKeeper, that a test can cut.

Every broker advertises a *door* of this network to its peers instead of its port, and has its own doors to ZooKeeper.
So every byte between them passes here, and each direction can be cut::

    network.block("1", "2")     2 doesn't get what 1 sends, as if a firewall dropped it; connections stay open
    network.pass_all()          it gets that now, as if TCP had resent it
    network.sever("1", "2")     connections between both are reset, also new ones, until pass_all

The first request on a connection names the broker that opened it. The network runs in its own thread; every method may
be called from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from tests.support.processes import free_port

T = TypeVar("T")

_CHUNK = 65_536
# Of a Kafka request: size, key, version, correlation id, then the client id with its length.
_HEADER = struct.Struct(">ihhih")
# Of ZooKeeper's answer to a new connection: size, protocol, timeout, session id, length of the password.
_SESSION = struct.Struct(">iiiqi")

ZOOKEEPER = "zookeeper"


class Session(NamedTuple):
    """A session with ZooKeeper; id and password suffice to end it."""

    session_id: int
    password: bytes


@dataclass(eq=False)
class _Door:
    port: int
    target_port: int
    target: str
    source: str | None
    """Who comes through it; None: the first request says."""
    listener: socket.socket | None = None


@dataclass(eq=False)
class _Passing:
    source: str
    target: str
    task: asyncio.Task[None]


@dataclass
class _State:
    blocked: set[tuple[str, str]] = field(default_factory=set)
    severed: set[frozenset[str]] = field(default_factory=set)


class Network:
    """See above. Use it as a context manager."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        """The present session of each broker, as ZooKeeper sent it through its door."""
        self._state = _State()
        self._doors: dict[int, _Door] = {}
        self._passing: set[_Passing] = set()
        self._accepted: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._changed: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> Network:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def door(self, target: str, target_port: int, source: str | None = None) -> int:
        """A port that leads to 127.0.0.1:``target_port``."""
        door = _Door(free_port(), target_port, target, source)
        self._doors[door.port] = door
        self._wait(self._open(door))
        return door.port

    def shut(self, target: str) -> None:
        """Close a broker's doors, as if its process were dead. Open connections stay."""
        self._wait(self._shut(target))

    def open(self, target: str) -> None:
        """Listen again."""
        for door in self._doors.values():
            if door.target == target:
                self._wait(self._open(door))

    def block(self, source: str, target: str) -> None:
        """Drop what one sends to the other."""
        self._call(lambda: self._state.blocked.add((source, target)))

    def sever(self, one: str, other: str) -> None:
        """Reset all connections between both, and refuse new ones."""

        def sever() -> None:
            self._state.severed.add(frozenset((one, other)))
            for each in self._passing:
                if {each.source, each.target} == {one, other}:
                    each.task.cancel()

        self._call(sever)

    def pass_all(self) -> None:
        """Every byte passes again."""

        def heal() -> None:
            self._state = _State()
            assert self._changed is not None
            self._changed.set()
            self._changed = asyncio.Event()

        self._call(heal)

    def _call(self, what: Callable[[], object]) -> None:
        async def call() -> None:
            what()

        self._wait(call())

    def _wait(self, what) -> None:  # type: ignore[no-untyped-def]
        asyncio.run_coroutine_threadsafe(what, self._loop).result(60)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._changed = asyncio.Event()
        self._loop.call_soon(self._ready.set)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _close(self) -> None:
        for door in self._doors.values():
            self._shut_door(door)
        tasks = list(self._accepted)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _open(self, door: _Door) -> None:
        if door.listener is None:
            door.listener = socket.create_server(("127.0.0.1", door.port), backlog=100)
            door.listener.setblocking(False)
            self._loop.add_reader(door.listener, self._accept, door)

    # Not asyncio's server: when closed while it accepts a connection, it leaves that open unnoticed.
    def _accept(self, door: _Door) -> None:
        if door.listener is None:
            return
        try:
            taken, _ = door.listener.accept()
        except OSError:
            return  # the peer has gone again
        taken.setblocking(False)
        task = self._loop.create_task(self._connect(door, taken))
        self._accepted.add(task)
        task.add_done_callback(self._accepted.discard)
        # A task that is cancelled before it starts doesn't close it.
        task.add_done_callback(lambda _: taken.close())

    async def _shut(self, target: str) -> None:
        for door in self._doors.values():
            if door.target == target:
                self._shut_door(door)

    def _shut_door(self, door: _Door) -> None:
        listener, door.listener = door.listener, None
        if listener is not None:
            self._loop.remove_reader(listener)
            listener.close()

    async def _connect(self, door: _Door, taken: socket.socket) -> None:
        writer: asyncio.StreamWriter | None = None
        beyond: asyncio.StreamWriter | None = None
        passing: _Passing | None = None
        try:
            reader, writer = await asyncio.open_connection(sock=taken)
            first = b""
            source = door.source
            if source is None:
                first = await reader.readexactly(_HEADER.size)
                length = _HEADER.unpack(first)[4]
                name = await reader.readexactly(max(0, length))
                first += name
                source = name.decode(errors="replace").rpartition("-")[2]
            if frozenset((source, door.target)) in self._state.severed:
                return
            answers, beyond = await asyncio.open_connection("127.0.0.1", door.target_port)
            task = asyncio.current_task()
            assert task is not None
            passing = _Passing(source, door.target, task)
            self._passing.add(passing)
            pumps = [
                asyncio.ensure_future(self._pump(reader, beyond, source, door.target, first)),
                asyncio.ensure_future(self._pump(answers, writer, door.target, source)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # cut, or no process behind the door: both ends are closed below
        finally:
            if passing is not None:
                self._passing.discard(passing)
            for end in (writer, beyond):
                if end is not None:
                    _reset(end)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: str,
        target: str,
        first: bytes = b"",
    ) -> None:
        noted = source != ZOOKEEPER
        with contextlib.suppress(OSError):
            data = first or await reader.read(_CHUNK)
            while data:
                if not noted:
                    noted = True
                    self._note_session(target, data)
                while (source, target) in self._state.blocked:
                    assert self._changed is not None
                    await self._changed.wait()
                writer.write(data)
                await writer.drain()
                data = await reader.read(_CHUNK)
            # An end that is cut off doesn't notice that the other has closed, either.
            while (source, target) in self._state.blocked:
                assert self._changed is not None
                await self._changed.wait()

    def _note_session(self, broker: str, data: bytes) -> None:
        if len(data) >= _SESSION.size:
            _, _, _, session_id, length = _SESSION.unpack_from(data)
            if session_id:
                self.sessions[broker] = Session(session_id, data[_SESSION.size :][:length])


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
