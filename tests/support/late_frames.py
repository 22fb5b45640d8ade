"""A proxy that keeps one request back, and delivers it later on the connection that the client has long given up.

A network may do that to any client: a connection breaks at its end, while a frame that it has sent is still under way
and the broker's end stays open. The client tries again on a new connection and goes on. Clients go to the address that
a broker advertises, so a broker behind it has to advertise it::

    with LateFrames() as network:
        broker = own_broker(settings={"advertised.listeners": f"PLAINTEXT://{network.address}"})
        network.target = broker.port
        held = network.hold(END_TXN)
        ...  # a client's EndTxn is held, its connection is cut, and it tries again
        held.deliver()
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

_DEADLINE = 60.0

PRODUCE = 0
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
END_TXN = 26
TXN_OFFSET_COMMIT = 28


class Held:
    """A request that is to be held. Filled in by the proxy's threads."""

    def __init__(self, api_key: int, cut: bool) -> None:
        self.api_key = api_key
        self.cut = cut
        self._frame = b""
        self._broker: socket.socket | None = None
        self._arrived = threading.Event()
        self._answer: bytes | None = None
        self._answered = threading.Event()
        self._released = threading.Event()

    @property
    def has_come(self) -> bool:
        """Whether a client has sent the request."""
        return self._arrived.is_set()

    def wait(self) -> None:
        """Wait until a client has sent the request."""
        assert self._arrived.wait(_DEADLINE), f"no request with key {self.api_key} was sent"

    def deliver(self, timeout: float = _DEADLINE) -> bytes | None:
        """Send the request to the broker now.

        Returns the response from the correlation id on, or None if the broker closes the connection.
        """
        self.wait()
        assert self._broker is not None
        try:
            self._broker.sendall(self._frame)
        except ConnectionError:
            return None
        assert self._answered.wait(timeout), "the broker neither answered nor closed the connection"
        return self._answer

    def release(self) -> None:
        """Forward a request that was held without a cut."""
        self.wait()
        self._released.set()

    def wait_released(self) -> None:
        """Wait for :meth:`release`."""
        self._released.wait(_DEADLINE)

    def put(self, frame: bytes, broker: socket.socket) -> None:
        """Keep the request that has come; ``broker`` is its connection."""
        self._frame, self._broker = frame, broker
        self._arrived.set()

    def answer(self, frame: bytes | None) -> bool:
        """Take ``frame`` if it is the request's response, and return whether it is; None: there will be none."""
        if frame is not None and frame[:4] != self._frame[8:12]:
            return False  # of a request that was sent before
        self._answer = frame
        self._answered.set()
        return True


class _Connection:
    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client = client
        self.broker = broker
        self.held: Held | None = None


class LateFrames:
    """Forwards 127.0.0.1:``port`` to 127.0.0.1:``target``."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.target = 0
        self._lock = threading.Lock()
        self._wanted: list[Held] = []
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hold(self, api_key: int, *, cut: bool = True) -> Held:
        """Hold the next request of this API. With ``cut`` its client's connection breaks, otherwise it waits."""
        held = Held(api_key, cut)
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

    def close(self) -> None:
        """End all connections and threads."""
        _end(self._socket)
        with self._lock:
            sockets = list(self._open)
        for each in sockets:
            _end(each)
        for thread in self._threads:
            thread.join(_DEADLINE)
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
                broker = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, broker}
            connection = _Connection(client, broker)
            self._start(self._requests, connection)
            self._start(self._answers, connection)

    def _requests(self, connection: _Connection) -> None:
        client, broker = connection.client, connection.broker
        with contextlib.suppress(OSError):
            while (body := _read_frame(client)) is not None:
                frame = len(body).to_bytes(4, "big") + body
                held = self._take(int.from_bytes(body[:2], "big"))
                if held is not None:
                    if held.cut:
                        connection.held = held
                    held.put(frame, broker)
                    if held.cut:
                        _end(client)
                        return
                    held.wait_released()
                broker.sendall(frame)
        _end(client)
        _end(broker)

    def _answers(self, connection: _Connection) -> None:
        answered = False
        with contextlib.suppress(OSError):
            while not answered and (body := _read_frame(connection.broker)) is not None:
                if connection.held is not None:
                    answered = connection.held.answer(body)
                else:
                    connection.client.sendall(len(body).to_bytes(4, "big") + body)
        if connection.held is not None and not answered:
            connection.held.answer(None)
        _end(connection.client)
        _end(connection.broker)

    def _take(self, api_key: int) -> Held | None:
        with self._lock:
            for held in self._wanted:
                if held.api_key == api_key:
                    self._wanted.remove(held)
                    return held
        return None


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
