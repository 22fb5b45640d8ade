"""Limits of the console's connections, whatever comes in.

Beyond :data:`MOST_CONNECTIONS`, a new connection takes the place of one that waits for its client, so that silent
clients don't keep others from being served; it is closed at once if all others are being served. Of these, one address
has at most :data:`MOST_OF_ADDRESS`, in the same way. A client that doesn't take its response is dropped.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, cast

from aiohttp import web

MOST_CONNECTIONS: Final = 512
MOST_OF_ADDRESS: Final = 256
HANDSHAKE_SECONDS: Final = 10.0
SEND_SECONDS: Final = 30.0
"""How long a client may take nothing of what waits for it."""
_LOOK_SECONDS: Final = 5.0
_SAY_SECONDS: Final = 60.0
"""Between two lines in the log about the same."""
_BACKLOG: Final = 32
"""Connections that wait to be accepted, all in the same turn of the event loop."""
_LOG: Final = logging.getLogger("ottla.console")
_OUT_OF: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Connections:
    """The open connections of a server. Belongs to one event loop.

    Attributes:
        most: the most connections; half of the files that the process may open, if that is less.
        most_of_address: the most connections of an address.
    """

    def __init__(self, server: Callable[[], Any], tls: ssl.SSLContext | None) -> None:
        """``server`` makes what serves a connection."""
        self.most = min(MOST_CONNECTIONS, max(2, _most_files() // 2))
        self.most_of_address = min(MOST_OF_ADDRESS, self.most // 2)
        self._server = server
        self._tls = tls
        # In the order in which they came.
        self._open: dict[_Connection, None] = {}
        self._said: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._before = self._loop.get_exception_handler()
        self._loop.set_exception_handler(self._failed)
        self._looking = self._loop.call_later(_LOOK_SECONDS, self._look)

    def close(self) -> None:
        """Drop all connections that are left."""
        self._looking.cancel()
        self._loop.set_exception_handler(self._before)
        for each in list(self._open):
            each.drop()

    def made(self) -> asyncio.Protocol:
        """What serves the next connection."""
        return _Connection(self, self._server(), self._tls)

    def admit(self, connection: _Connection) -> bool:
        """Whether one more connection is served. If there are too many, one that waits for its client is dropped."""
        same = [each for each in self._open if each.host == connection.host]
        if len(same) >= self.most_of_address:
            admitted = self._drop_one(same)
            self._say(
                f"{connection.host} has {self.most_of_address} connections; others of its own are closed"
            )
        elif len(self._open) >= self.most:
            admitted = self._drop_one(self._open)
            self._say(f"there are {self.most} connections; silent ones are closed for new ones")
        else:
            admitted = True
        if admitted:
            self._open[connection] = None
        return admitted

    def lost(self, connection: _Connection) -> None:
        self._open.pop(connection, None)

    def _drop_one(self, among: Collection[_Connection]) -> bool:
        """Drop the oldest that waits for its client, of the address with the most of them. False if there is none."""
        waiting = [each for each in among if each.waits]
        if not waiting:
            return False
        of_host = Counter(each.host for each in waiting)
        max(waiting, key=lambda each: of_host[each.host]).drop()
        return True

    def _look(self) -> None:
        """Drop those that take nothing of what waits for them."""
        now = self._loop.time()
        for each in list(self._open):
            if each.is_stuck(now):
                each.drop()
        self._looking = self._loop.call_later(_LOOK_SECONDS, self._look)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What no task has to do with: asyncio logs a traceback for each connection that it has no file for."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _OUT_OF and "accept" in context.get("message", ""):
            self._say(f"connections can't be accepted: {error.strerror}")
        elif self._before is not None:
            self._before(loop, context)
        else:
            loop.default_exception_handler(context)

    def _say(self, text: str) -> None:
        """Log a line, not too often."""
        now = self._loop.time()
        kind = text.partition(" ")[2]
        if now - self._said.get(kind, -_SAY_SECONDS) >= _SAY_SECONDS:
            self._said[kind] = now
            _LOG.warning(text)


class _Counted:
    """A transport that knows how many bytes were written to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += memoryview(data).nbytes
        self._transport.write(data)

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(pieces))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Connection(asyncio.Protocol):
    """One connection: it passes on to what serves it, once it is admitted and any handshake is done."""

    def __init__(self, all_: Connections, handler: Any, tls: ssl.SSLContext | None) -> None:
        self.host = ""
        self._all = all_
        self._handler = handler
        self._tls = tls
        self._is_served = self._is_lost = False
        self._early = b""
        """What comes with the end of the handshake."""
        self._transport: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._counted: _Counted | None = None
        self._taken = 0
        self._taken_at = 0.0

    @property
    def waits(self) -> bool:
        """Whether it waits for its client: for the head of a request, or for the handshake."""
        return not (self._is_served and getattr(self._handler, "_request_in_progress", True))

    def is_stuck(self, now: float) -> bool:
        """Whether its client has taken nothing for too long. To be asked again and again."""
        counted = self._counted
        unsent = 0 if counted is None else counted.get_write_buffer_size()
        # Bytes, not what is left: more may come than it takes.
        taken = 0 if counted is None else counted.written - unsent
        if not unsent or taken > self._taken:
            self._taken, self._taken_at = taken, now
        return bool(unsent) and now - self._taken_at >= SEND_SECONDS

    def drop(self) -> None:
        """Close it at once. Its place is free."""
        self._all.lost(self)
        if self._handshake is not None:
            self._handshake.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = self._transport = cast(asyncio.Transport, transport)
        # An IPv4 client of an IPv6 listener counts as the same client as on an IPv4 listener.
        self.host = str((made.get_extra_info("peername") or ("",))[0]).removeprefix("::ffff:")
        if not self._all.admit(self):
            made.abort()
        elif self._tls is None:
            self._serve(made)
        else:
            made.pause_reading()
            self._handshake = asyncio.ensure_future(self._shake_hands(made, self._tls))

    async def _shake_hands(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        made: asyncio.Transport | None = None
        try:
            made = await asyncio.get_running_loop().start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except (OSError, TimeoutError):
            pass  # It is no TLS, or too slow.
        finally:
            self._handshake = None
            if made is None:
                self._all.lost(self)
                transport.abort()
        if made is not None:
            self._transport = made
            self._serve(made)

    def _serve(self, transport: asyncio.Transport) -> None:
        if self._is_lost:
            return
        self._is_served = True
        self._counted = _Counted(transport)
        self._handler.connection_made(self._counted)
        if self._early:
            self._handler.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        if self._is_served:
            self._handler.data_received(data)
        else:
            self._early += data

    def eof_received(self) -> bool | None:
        return self._handler.eof_received() if self._is_served else None

    def pause_writing(self) -> None:
        if self._is_served:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        if self._is_served:
            self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._all.lost(self)
        if self._is_served:
            self._handler.connection_lost(exc)


class LimitedSite(web.BaseSite):
    """A listening address of a runner, with limits of its connections."""

    def __init__(self, runner: web.BaseRunner, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        super().__init__(runner, ssl_context=tls, backlog=_BACKLOG)
        self._host = host
        self._port = port
        assert runner.server is not None
        self.connections = Connections(runner.server, tls)

    @property
    def name(self) -> str:
        return f"{'http' if self._ssl_context is None else 'https'}://{self._host}:{self._port}"

    async def start(self) -> None:
        await super().start()
        self._server = await asyncio.get_running_loop().create_server(
            self.connections.made, self._host, self._port, backlog=self._backlog
        )


def _most_files() -> int:
    """How many files and sockets the process may open."""
    try:
        import resource
    except ImportError:
        return 2 * MOST_CONNECTIONS
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2 * MOST_CONNECTIONS if most == resource.RLIM_INFINITY else most
