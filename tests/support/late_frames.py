"""A proxy that keeps requests back, and delivers them later on the connection that the client has long given up.

A network may do that to any client: a connection breaks at its end, while a frame that it has sent is still under way
and the broker's end stays open. The client tries again on a new connection and goes on. Clients go to the address that
a broker advertises, so a broker behind it has to advertise it::

    with LateFrames() as network:
        broker = own_broker(settings={"advertised.listeners": f"PLAINTEXT://{network.address}"})
        network.target = broker.port
        held = network.holds.hold(END_TXN)
        ...  # a client's EndTxn is held, its connection is cut, and it tries again
        held.deliver()

Several proxies, one for each broker, may share what they are to hold.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable
from types import TracebackType

_DEADLINE = 60.0
_HEADER = struct.Struct(">hhih")
"""Of a request: API key, version, correlation id, length of the client's id."""

PRODUCE = 0
INIT_PRODUCER_ID = 22
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
END_TXN = 26
WRITE_TXN_MARKERS = 27
TXN_OFFSET_COMMIT = 28


class How(enum.Enum):
    """What happens to the connection of a request that is held."""

    CUT = enum.auto()
    """The client's side breaks."""
    STALL = enum.auto()
    """The client waits, and all that it sends on the connection is held as well."""
    LOSE = enum.auto()
    """The broker gets the request. Its client's side breaks instead of the answer."""


class Held:
    """A request that is to be held, and what follows it on its connection. Filled in by the proxy's threads.

    Attributes:
        frames: what is held, with the length before each.
        answers: the broker's responses to these, from the correlation id on.
    """

    def __init__(self, api_key: int, how: How, client: str, skip: int) -> None:
        self.api_key, self.how, self.client, self.skip = api_key, how, client, skip
        self.frames: list[bytes] = []
        self.answers: list[bytes] = []
        self._changed = threading.Condition()
        self._connection: _Connection | None = None
        self._is_open = True
        self._released = False

    @property
    def has_come(self) -> bool:
        """Whether a client has sent the request."""
        return self._connection is not None

    @property
    def is_released(self) -> bool:
        """Whether nothing is held any more: other requests on the connection may be."""
        with self._changed:
            return self._released

    def wait(self, count: int = 1) -> None:
        """Wait until a client has sent the request, and with it so many on its connection."""
        with self._changed:
            come = self._changed.wait_for(lambda: len(self.frames) >= count, _DEADLINE)
        assert come, f"{len(self.frames)} requests with key {self.api_key} were sent instead of {count}"

    def wait_answered(self) -> None:
        """Wait until the broker has answered the request whose answer is lost."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.answers or not self._is_open, _DEADLINE)

    def cut(self) -> None:
        """Break the client's side."""
        assert self._connection is not None
        self._connection.is_cut = True
        _end(self._connection.client)

    def deliver(self, timeout: float = _DEADLINE) -> list[bytes]:
        """Send the broker now what is held; returns its answers: fewer if it closes the connection."""
        self.wait()
        assert self._connection is not None
        self.cut()
        with contextlib.suppress(OSError):
            self._connection.broker.sendall(b"".join(self.frames))
        with self._changed:
            done = self._changed.wait_for(
                lambda: len(self.answers) >= len(self.frames) or not self._is_open, timeout
            )
        _end(self._connection.broker)
        assert done, "the broker neither answered nor closed the connection"
        return self.answers

    def release(self) -> None:
        """Forward what was held while its client waits."""
        self.wait()
        assert self._connection is not None
        with self._changed:
            self._released = True
            with contextlib.suppress(OSError):
                self._connection.broker.sendall(b"".join(self.frames))

    def take(self, frame: bytes, connection: _Connection) -> bool:
        """Keep a frame that has come. Returns False if it is to be forwarded."""
        with self._changed:
            if self._released:
                return False
            self._connection = connection
            self.frames.append(frame)
            self._changed.notify_all()
            return self.how is not How.LOSE

    def answer(self, body: bytes) -> bool:
        """Take a response. Returns False if the client gets it."""
        with self._changed:
            if all(body[:4] != frame[8:12] for frame in self.frames):
                return self._connection is not None and self._connection.is_cut
            if self._released:
                return False
            self.answers.append(body)
            self._changed.notify_all()
        return True

    def close(self) -> None:
        """The broker has closed the connection."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()


class Holds:
    """What proxies are to hold: the next request of each kind that was asked for, or what ``chance`` says.

    ``chance`` gets a request's API key and its client's id. ``trace`` gets each request and answer as it passes: the
    connection's number, what happens (``>`` to the broker, ``<`` to the client, a name of How, ``late`` for an
    answer that no client gets), and the frame without its length.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: list[Held] = []
        self.chance: Callable[[int, str], Held | None] | None = None
        self.trace: Callable[[int, str, bytes], object] | None = None

    def hold(self, api_key: int, how: How = How.CUT, *, client: str = "", skip: int = 0) -> Held:
        """Hold the next request of this API, or with ``skip`` one after it, of clients whose id begins so."""
        held = Held(api_key, how, client, skip)
        with self._lock:
            self._wanted.append(held)
        return held

    def forget(self, held: Held) -> bool:
        """Stop waiting for a request that hasn't come. Returns whether that was so."""
        with self._lock:
            if held in self._wanted:
                self._wanted.remove(held)
                return True
        return False

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._wanted.clear()

    def take(self, api_key: int, client: str) -> Held | None:
        """What holds the request that has come, if anything."""
        with self._lock:
            for held in self._wanted:
                if held.api_key == api_key and client.startswith(held.client):
                    held.skip -= 1
                    if held.skip >= 0:
                        return None
                    self._wanted.remove(held)
                    return held
        return None if self.chance is None else self.chance(api_key, client)


_numbers = itertools.count()


class _Connection:
    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client, self.broker = client, broker
        self.number = next(_numbers)
        self.held: Held | None = None
        self.is_cut = False


class LateFrames:
    """Forwards 127.0.0.1:``port`` to 127.0.0.1:``target``."""

    def __init__(self, holds: Holds | None = None) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.target = 0
        self.holds = Holds() if holds is None else holds
        self._lock = threading.Lock()
        self._open: set[_Connection] = set()
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> LateFrames:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Accept connections from now on."""
        self._start(self._accept)

    def cut(self) -> int:
        """Break all connections that nothing is held on, at both ends. Returns how many."""
        with self._lock:
            cut = [each for each in self._open if each.held is None or each.held.is_released]
        for each in cut:
            _end(each.client)
            _end(each.broker)
        return len(cut)

    def close(self) -> None:
        """End all connections and threads."""
        _end(self._socket)
        with self._lock:
            connections = list(self._open)
        for each in connections:
            _end(each.client)
            _end(each.broker)
        deadline = time.monotonic() + _DEADLINE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive()

    def _start(self, what: object, *args: object) -> None:
        thread = threading.Thread(target=what, args=args, daemon=True)  # type: ignore[arg-type]
        with self._lock:
            self._threads = [*(each for each in self._threads if each.is_alive()), thread]
            thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.target), _DEADLINE)
                broker.settimeout(None)
            except OSError:
                client.close()
                continue
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(client, broker)
            with self._lock:
                self._open.add(connection)
            self._start(self._requests, connection)
            self._start(self._answers, connection)

    def _requests(self, connection: _Connection) -> None:
        """Ends with the client's side. The broker's end stays open while something is held."""
        with contextlib.suppress(OSError):
            while (body := _read_frame(connection.client)) is not None:
                frame = len(body).to_bytes(4, "big") + body
                if connection.held is None or connection.held.is_released:
                    connection.held = self._take(body)
                held = connection.held
                if self.holds.trace is not None:
                    self.holds.trace(connection.number, ">" if held is None else held.how.name, body)
                if held is None:
                    connection.broker.sendall(frame)
                elif not held.take(frame, connection):
                    connection.broker.sendall(frame)
                    if held.how is How.LOSE:
                        held.wait_answered()
                        break
                elif held.how is How.CUT:
                    held.cut()
                    return
        _end(connection.client)
        held = connection.held
        if held is None or held.how is How.LOSE or held.is_released:
            _end(connection.broker)

    def _take(self, body: bytes) -> Held | None:
        api_key, _, _, length = _HEADER.unpack_from(body)
        client = body[_HEADER.size : _HEADER.size + max(0, length)].decode(errors="replace")
        return self.holds.take(api_key, client)

    def _answers(self, connection: _Connection) -> None:
        with contextlib.suppress(OSError):
            while (body := _read_frame(connection.broker)) is not None:
                held = connection.held
                kept = held is not None and held.answer(body)
                if self.holds.trace is not None:
                    self.holds.trace(connection.number, "late" if kept else "<", body)
                if kept:
                    continue
                try:
                    connection.client.sendall(len(body).to_bytes(4, "big") + body)
                except OSError:
                    if connection.held is None:
                        break
        if connection.held is not None:
            connection.held.close()
        _end(connection.client)
        _end(connection.broker)
        with self._lock:
            self._open.discard(connection)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _read_frame(connection: socket.socket) -> bytes | None:
    head = _read(connection, 4)
    return None if head is None else _read(connection, int.from_bytes(head, "big"))


def _read(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            return None
        data += more
    return bytes(data)
