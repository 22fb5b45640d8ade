"""One client's socket: frames in, responses out, in order.

A connection is a reader (:mod:`.reader`), a writer (:mod:`.writer`), its answers in their order (:mod:`.answers`), and
the reasons for which it isn't read (:mod:`.holds`). Reading also pauses while the client doesn't take its responses,
while many requests are pending, or while large responses wait behind a pending one.

The parts refer to their connection. One that has closed lets go of them, so that it is gone at once: what clients leave
behind by connecting again and again isn't for the garbage collector, which holds the event loop.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ottla_broker.events import LimitedLogger, get_logger
from ottla_broker.log.heard_connections import ConnectionAge
from ottla_broker.network.answers import Answers
from ottla_broker.network.holds import ENDING, LONG, Holds
from ottla_broker.network.owner import Channel, Owner
from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.network.reader import Reader
from ottla_broker.network.service import ANONYMOUS, Principal
from ottla_broker.network.writer import SendFile, Writer

_log = get_logger()
_closed_log = LimitedLogger()

AUTHENTICATION_SECONDS: Final = 30.0
"""A client that hasn't authenticated after this time is disconnected."""


class Connection:
    """Owned by its processor, on the loop thread."""

    __slots__ = (
        "age",
        "answers",
        "authenticated",
        "client_host",
        "client_id",
        "closed",
        "fd",
        "holds",
        "id",
        "last_active",
        "listener",
        "on_close",
        "principal",
        "processor",
        "reader",
        "session",
        "sock",
        "waiting_since",
        "writer",
    )

    def __init__(
        self,
        processor: Owner,
        sock: Channel,
        client_host: str,
        connection_id: str,
        listener: str,
        send_file: SendFile | None = None,
        reader: type[Reader] = Reader,
    ) -> None:
        """``send_file`` and ``reader`` are for a channel that isn't a bare socket."""
        self.processor = processor
        self.sock = sock
        self.fd = sock.fileno()
        self.client_host = client_host
        self.client_id: str | None = None
        self.id = connection_id
        self.listener = listener
        self.principal: Principal = ANONYMOUS
        self.authenticated = not processor.authenticates
        # The service's own: how far the client has authenticated.
        self.session: Any = None
        self.on_close: dict[object, Callable[[], None]] = {}
        self.closed = False
        self.last_active = processor.clock.monotonic()
        self.age = ConnectionAge(self.last_active)
        self.waiting_since = 0.0
        self.holds = Holds(processor.clock)
        self.writer = Writer(self, send_file)
        self.answers = Answers(self, self.writer)
        self.reader = reader(self, self.holds, self.answers, self.writer)

    def start(self) -> None:
        """Start reading. Raises OSError if the system can watch no more sockets."""
        self.reader.start()

    def serve_held(self) -> None:
        """Go on with what has been received, or can be. Called by :class:`.Backlog`."""
        if not self.closed:
            self.reader.serve_held()

    def on_response_ready(self) -> None:
        """Send the responses that are ready, up to the first that is pending."""
        if self.closed:
            return
        self.answers.send_ready()
        if not self.closed and (self.answers.pending or not self.reader.reading):
            self.reader.hold_or_resume()

    def on_written(self) -> None:
        """Called when responses wait in the writer, or some of those that waited have gone out."""
        if not self.closed:
            self.answers.count()
            self.reader.hold_or_resume()

    def stop_reading(self) -> None:
        """Read no more requests; pending ones are still answered."""
        if not self.closed:
            self.holds.add(ENDING)
            self.reader.hold()

    def throttle(self, seconds: float) -> None:
        """Mute the connection of a client that exceeds a quota: read nothing for a time. Responses are still sent."""
        if not self.closed:
            self.holds.mute(seconds, self.reader.resume)
            self.reader.hold_or_resume()

    def begin_long(self) -> None:
        """Read nothing until :meth:`end_long`: see :meth:`.ClientConnection.begin_long`."""
        if not self.closed:
            self.holds.begin_long()
            self.reader.hold()

    def end_long(self) -> None:
        """Continue once all that was begun has ended."""
        if self.holds.reasons & LONG and self.holds.end_long():
            self.reader.end_long()
            if self.closed:
                self._let_go()

    def has_left(self) -> bool:
        """Whether the client is gone, asked while nothing is read: see :meth:`.ClientConnection.has_left`."""
        return self.closed or self.reader.has_left()

    def is_late(self, now: float) -> bool:
        """Whether the client should have authenticated by now."""
        return not self.authenticated and now - self.age.accepted_at > AUTHENTICATION_SECONDS

    def is_stalled(self, now: float) -> bool:
        """Whether the client has begun a frame and sends the rest too slowly. Asked every few seconds."""
        return self.reader.is_stalled(now)

    def is_quiet(self, since: float) -> bool:
        """Whether the connection is read, and nothing has arrived or been sent since then."""
        return self.reader.reading and self.last_active < since

    def read_anew(self) -> None:
        """Have the event loop report again what has happened to the socket."""
        self.reader.hold()
        self.reader.resume()

    @property
    def taken(self) -> int:
        """The bytes of answers that the client has taken so far."""
        return self.writer.taken

    @property
    def waits(self) -> bool:
        """Whether the client waits for a response, so that it isn't idle."""
        return not self.closed and bool(self.answers.pending)

    @property
    def busy(self) -> bool:
        """Whether a response is pending or being sent."""
        return not self.closed and bool(self.answers.pending or self.writer.out)

    @property
    def pending_requests(self) -> int:
        """Requests whose responses wait: for data, for replicas, or for those before them."""
        return len(self.answers.pending)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses that the client doesn't take yet."""
        return sum(map(len, self.writer.out))  # type: ignore[arg-type]

    def cut(self) -> None:
        """Shut the socket down, on any thread."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close_on_error(self, error: Exception) -> None:
        """Close after an error in receiving, serving or sending.

        Clients that leave before their responses arrive aren't logged.
        """
        if isinstance(error, CloseConnection):
            self.close(str(error))
        elif isinstance(error, ConnectionResetError | BrokenPipeError):
            self.close(None)
        elif isinstance(error, OSError):
            self.close(f"the connection broke: {error.strerror or error}")
        else:
            # A defect of this broker: only this client's connection is closed.
            _log.error("a connection failed", connection=self.id, client_id=self.client_id, exc_info=error)
            self.close("a defect in the broker, see above")

    def close(self, reason: str | None) -> None:
        """Close the socket and abandon pending requests. ``reason`` is logged; None if the client just left."""
        if self.closed:
            return
        self.closed = True
        self.holds.add(ENDING)
        self.holds.unmute()
        self.writer.stop()
        self.reader.stop()
        self.sock.close()
        # Detached first: abandoning one request may complete others of this connection.
        for response in self.answers.detach():
            if response.abandon is not None:
                response.abandon()
        on_close, self.on_close = self.on_close, {}
        for callback in on_close.values():
            callback()
        self.processor.forget(self)
        if not self.holds.reasons & LONG:
            self._let_go()
        if reason is not None:
            _closed_log.warning(
                "connection closed",
                reason=reason,
                connection=self.id,
                client_id=self.client_id,
                listener=self.listener,
            )

    def _let_go(self) -> None:
        """End the circles of references. The parts aren't used again."""
        del self.reader, self.answers, self.writer
