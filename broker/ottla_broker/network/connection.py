"""One client's socket: frames in, responses out, in order.

Reading. Bytes go into a scratch buffer that all connections of a processor share, and whole frames are served right out
of it. A large frame that isn't complete gets its own buffer, which grows as the rest arrives. Between requests a
connection holds no buffer.

Writing. A response is sent at once, in one call where it is short: small slices of files are read for that, large ones
sent by ``sendfile``. Bytes that the socket doesn't take wait in ``_out``, and nothing more is read from
this client until they are gone: a slow reader holds back only itself. Reading also pauses while many requests are
pending, or large responses wait behind a pending one.

Requests are served only in callbacks of the event loop, never inside what another connection's request set off: a
coordinator that answers its members one by one must not meet a member's next request halfway.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from struct import Struct
from typing import Any, Protocol

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.events import LimitedLogger, get_logger
from ottla_broker.log.files import FileSlice
from ottla_broker.log.heard_connections import ConnectionAge
from ottla_broker.network.answer_memory import SMALL_ANSWERS
from ottla_broker.network.backlog import PORTION_BYTES, TURN_SECONDS, Backlog
from ottla_broker.network.large_frame import LargeFrame, room_for
from ottla_broker.network.pending_response import CloseConnection, PendingResponse
from ottla_broker.network.request_memory import SHORTAGE_SECONDS, BufferPool, RequestMemory
from ottla_broker.network.service import ANONYMOUS, Parts, Principal, Service
from ottla_broker.network.streamed_part import StreamedPart

_log = get_logger()
_closed_log = LimitedLogger()

READ_BUDGET = 4 * 1024 * 1024
"""Bytes read from one connection in a turn of the event loop."""
SEND_BUDGET = 4 * 1024 * 1024
"""Bytes sent to one connection in a turn of the event loop."""
REQUESTS_PER_TURN = 64
"""Requests served from one connection in a turn of the event loop, at most for :data:`.TURN_SECONDS`."""
FIRST_REQUESTS_PER_TURN = 4
"""The same for a client that hasn't authenticated."""
FEW_PARKED = 8
"""Requests of one connection that may wait for their answers however many others wait."""
MOST_PARKED = 2_000
"""Requests of a processor's connections that wait, beyond which each connection has only a few. One takes 3 KB."""
QUEUED_RESPONSE_BYTES = 1024 * 1024
"""Bytes of finished responses that may wait behind a pending one; beyond that nothing is read."""

PROBE_BYTES = 256
"""Bytes received to find out whether a client is still there."""
HELD_BYTES = 4096
"""Up to this many bytes of a frame that isn't complete are kept without a buffer."""
FRAME_SECONDS = 30.0
AUTHENTICATION_SECONDS = 30.0
"""A client that hasn't authenticated after this time is disconnected."""
LEAST_BYTES_PER_SECOND = 16 * 1024
"""A frame that falls ``FRAME_SECONDS`` behind this rate is given up; a fast beginning gives it no more time."""

_IN_MEMORY = (bytes, bytearray, memoryview)
"""Parts of a response that are bytes; the others are :class:`.FileSlice` and :class:`.StreamedPart`."""
COPIED_BYTES = SMALL_ANSWERS
"""Slices of files up to this size, together, are read and sent with the parts around them: that takes half as long."""

_SIZE = Struct(">i")
_unpack_size = _SIZE.unpack_from


def _memory_of(parts: Iterable[object]) -> int:
    """The bytes of parts that are in memory."""
    return sum(len(part) for part in parts if isinstance(part, _IN_MEMORY))


def _other_protocol(size: int) -> str:
    """Advice about an absurd size whose four bytes begin another protocol; empty if they begin none."""
    said = size.to_bytes(4, "big", signed=True)
    if said[:2] == b"\x16\x03":  # a TLS record: handshake, version 3.x
        return (
            "; the client speaks TLS, this listener doesn't: set the client's security.protocol to PLAINTEXT"
        )
    if said in (b"GET ", b"POST", b"PUT ", b"HEAD"):
        return "; the client speaks HTTP, this listener Kafka's protocol: point the client elsewhere"
    return ""


class Channel(Protocol):
    """The calls of a non-blocking socket that a connection uses; a TLS connection has others behind them."""

    def fileno(self) -> int: ...
    def recv_into(self, buffer: memoryview, size: int = 0, /) -> int: ...
    def send(self, data: memoryview, /) -> int: ...
    def sendmsg(
        self, buffers: list[bytes | bytearray | memoryview], ancillary: Any, flags: int, /
    ) -> int: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class Owner(Protocol):
    """The processor that a connection belongs to.

    Attributes:
        backlog: those that wait for another turn.
        scratch: the buffer that its connections share.
        max_request_bytes: the largest frame that is accepted.
        max_first_bytes: the same until the client has authenticated.
        authenticates: whether clients must authenticate before anything else.
        max_parked: requests of one connection that may wait for their answers.
        parked: how many of all connections wait.
        received_bytes, sent_bytes: by all its connections so far; ``sendfile_bytes`` of the latter by sendfile.
    """

    loop: asyncio.AbstractEventLoop
    clock: Clock
    service: Service
    memory: RequestMemory
    backlog: Backlog
    pool: BufferPool
    scratch: memoryview
    max_request_bytes: int
    max_first_bytes: int
    authenticates: bool
    max_parked: int
    parked: int
    received_bytes: int
    sent_bytes: int
    sendfile_bytes: int

    def forget(self, connection: Connection) -> None:
        """Called by a connection that has closed."""
        ...


class Connection:
    """Owned by its processor, on the loop thread."""

    __slots__ = (
        "_counted",
        "_deadline",
        "_frame",
        "_held",
        "_keeps_memory",
        "_long",
        "_out",
        "_owed",
        "_pending",
        "_queued_bytes",
        "_queued_held",
        "_reading",
        "_received_at",
        "_serves_soon",
        "_stopped_at",
        "_stopping",
        "_throttled",
        "_throttled_until",
        "_unread",
        "_waiting_for_memory",
        "_waiting_for_piece",
        "_writing",
        "age",
        "authenticated",
        "client_host",
        "client_id",
        "closed",
        "fd",
        "id",
        "last_active",
        "listener",
        "on_close",
        "principal",
        "processor",
        "session",
        "sock",
        "taken",
        "waiting_since",
    )

    def __init__(
        self, processor: Owner, sock: Channel, client_host: str, connection_id: str, listener: str
    ) -> None:
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
        self.last_active = self._received_at = processor.clock.monotonic()
        self.age = ConnectionAge(self.last_active)
        self.waiting_since = 0.0
        self._pending: deque[PendingResponse] = deque()
        self._queued_bytes = 0
        # Of these bytes, those in memory; whether all that is held is counted.
        self._queued_held = 0
        self._counted = False
        self._out: deque[object] = deque()
        # Bytes sent in several parts so far, and what they are when nothing in memory waits in ``_out``.
        self.taken = self._owed = 0
        # Received but not served: the start of a frame, or whole frames while reading is paused.
        self._held = b""
        # A frame that is being received into its own buffer.
        self._frame: LargeFrame | None = None
        # When the frame that isn't complete is given up; 0 for none. The progress of a large one moves it.
        self._deadline = 0.0
        self._reading = False
        # When reading paused last.
        self._stopped_at = 0.0
        self._writing = False
        # Whether the next turn serves what is held: once, however many responses were ready meanwhile.
        self._serves_soon = False
        # Whether bytes have arrived that are read in the connection's next turn.
        self._unread = False
        self._stopping = False
        # How many wait for the end of a long request, and whether its frame is still counted in the memory.
        self._long = 0
        self._keeps_memory = False
        self._waiting_for_memory = False
        self._waiting_for_piece = False
        # While its client waits for its quota to recover.
        self._throttled: TimerHandle | None = None
        self._throttled_until = 0.0

    def start(self) -> None:
        """Start reading. Raises OSError if the system can watch no more sockets."""
        self.processor.loop.add_reader(self.fd, self._on_readable)
        self._reading = True
        self._unread = False
        if self._deadline:
            # The client isn't to blame for the time in which this broker didn't read.
            self._deadline += self.processor.clock.monotonic() - self._stopped_at

    def stop_reading(self) -> None:
        """Read no more requests; pending ones are still answered."""
        self._stopping = True
        self._hold_reading()

    def throttle(self, seconds: float) -> None:
        """Mute the connection of a client that exceeds a quota: read nothing for a time. Responses are still sent."""
        until = self.processor.clock.monotonic() + seconds
        if self.closed or until <= self._throttled_until:
            return
        if self._throttled is not None:
            self._throttled.cancel()
        self._throttled_until = until
        self._throttled = self.processor.clock.call_later(seconds, self._end_throttling)
        self._hold_reading()

    def begin_long(self) -> None:
        """Read nothing until :meth:`end_long`: see :meth:`.ClientConnection.begin_long`."""
        self._long += 1
        self._hold_reading()

    def end_long(self) -> None:
        """Continue once all that was begun has ended."""
        self._long -= 1
        if self._long:
            return
        if self._keeps_memory:
            self._keeps_memory = False
            self.processor.memory.release(self)
        if not self.closed:
            self._resume_reading()

    def has_left(self) -> bool:
        """Whether the client is gone, asked while nothing is read: see :meth:`.ClientConnection.has_left`.

        Requests that it has sent ahead may matter, so a client that has sent some isn't looked at again.
        """
        if self.closed or self._reading or self._held or self._frame is not None:
            return self.closed
        processor = self.processor
        try:
            n = self.sock.recv_into(processor.scratch, PROBE_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            self._close_on_socket_error(error)
            return True
        if n == 0:
            self.close(None)
            return True
        processor.received_bytes += n
        self._held = bytes(processor.scratch[:n])
        # Its turn serves these bytes: there may be none left to read.
        self._unread = False
        self._received_at = processor.clock.monotonic()
        self._deadline = self._received_at + FRAME_SECONDS
        return False

    def _end_throttling(self) -> None:
        self._throttled = None
        if not self.closed:
            self._resume_reading()

    def _on_readable(self) -> None:
        processor = self.processor
        now = processor.clock.monotonic()
        backlog = processor.backlog
        if now > backlog.late_after and not backlog.admit(self, now):
            self._unread = True
            self._hold_reading()
            self._wait_for_turn()
            return
        self.last_active = self._received_at = now
        self.waiting_since = 0.0
        try:
            if self._frame is None:
                scratch = processor.scratch
                held = self._held
                have = len(held)
                if have:
                    scratch[:have] = held
                crowded = backlog.is_long
                n = self.sock.recv_into(scratch[have:] if have else scratch, PORTION_BYTES if crowded else 0)
                if n == 0:
                    self.close(None)
                    return
                self._held = b""
                processor.received_bytes += n
                self._serve(scratch, have + n, crowded)
            budget = READ_BUDGET
            while (frame := self._frame) is not None and budget > 0:
                wanted = frame.room - frame.filled
                n = self.sock.recv_into(frame.view[frame.filled :], wanted)
                if n == 0:
                    self.close(None)
                    return
                frame.filled += n
                processor.received_bytes += n
                budget -= n
                if n < wanted:
                    # A short read has emptied the socket; the loop calls again when there is more.
                    return
                if frame.filled == frame.size:
                    self._frame_complete(frame)
                elif not self._grow(frame):
                    return
        except BlockingIOError:
            return
        except Exception as error:
            self._close_on_error(error)

    def _close_on_error(self, error: Exception) -> None:
        """Close after an error in receiving or serving requests."""
        if isinstance(error, CloseConnection):
            self.close(str(error))
        elif isinstance(error, OSError):
            self._close_on_socket_error(error)
        else:
            # A defect of this broker: only this client's connection is closed.
            _log.error("a connection failed", connection=self.id, client_id=self.client_id, exc_info=error)
            self.close("a defect in the broker, see above")

    def _close_on_socket_error(self, error: OSError) -> None:
        """Close after an error of the socket. Clients that leave before their responses arrive aren't logged."""
        left = isinstance(error, ConnectionResetError | BrokenPipeError)
        self.close(None if left else f"the connection broke: {error.strerror or error}")

    def _serve(self, data: memoryview, end: int, crowded: bool = False) -> None:
        """Serve the whole frames in ``data[:end]``, one if it is crowded, and keep the rest."""
        position = 0
        turn = most = 1 if crowded else REQUESTS_PER_TURN if self.authenticated else FIRST_REQUESTS_PER_TURN
        clock = self.processor.clock
        now = clock.monotonic()
        until = now + TURN_SECONDS
        unfinished = 0
        while end - position >= 4:
            (size,) = _unpack_size(data, position)
            owner = self.processor
            largest = owner.max_request_bytes if self.authenticated else owner.max_first_bytes
            if not 0 <= size <= largest:
                key = "socket.request.max.bytes"
                if not self.authenticated:
                    key = "sasl.server.max.receive.size, until the client has authenticated"
                raise CloseConnection(
                    f"a frame of {size} bytes was announced, allowed are 0 to {largest} ({key})"
                    + _other_protocol(size)
                )
            stop = position + 4 + size
            if stop > end:
                unfinished = size
                break
            if not turn or (turn < most and clock.monotonic() >= until):
                # Other connections first; the rest is served in a later turn.
                self._held = bytes(data[position:end])
                self._hold_reading()
                self._resume_reading()
                return
            turn -= 1
            self._handle(data[position + 4 : stop])
            # Whatever else has come waits for this one.
            self.waiting_since = self._received_at
            position = stop
            if self._must_hold:
                if self.closed:
                    return
                self._hold_reading()
                break
        if position == end:
            self._deadline = 0.0
            return
        if position or not self._deadline:
            self._deadline = now + FRAME_SECONDS
        if unfinished and end - position > HELD_BYTES:
            self._begin_frame(unfinished, data[position:end])
        else:
            self._held = bytes(data[position:end])

    def is_late(self, now: float) -> bool:
        """Whether the client should have authenticated by now."""
        return not self.authenticated and now - self.age.accepted_at > AUTHENTICATION_SECONDS

    def is_stalled(self, now: float) -> bool:
        """Whether the client has begun a frame and sends the rest too slowly. Asked every few seconds."""
        if not self._reading or not self._deadline:
            return False
        if self._frame is not None:
            gained = self._frame.progress() / LEAST_BYTES_PER_SECOND
            self._deadline = min(self._deadline + gained, now + FRAME_SECONDS)
        return now > self._deadline

    def is_quiet(self, since: float) -> bool:
        """Whether the connection is read, and nothing has arrived or been sent since then."""
        return self._reading and self.last_active < since

    def read_anew(self) -> None:
        """Have the event loop report again what has happened to the socket."""
        self._hold_reading()
        self._resume_reading()

    @property
    def received(self) -> int:
        """The bytes received of a frame with its own buffer."""
        return 0 if self._frame is None else self._frame.filled

    @property
    def is_held_up(self) -> bool:
        """Whether this broker doesn't read the frame now, though the client takes the responses before it."""
        if self._reading:
            return False
        return not self._out or self.processor.clock.monotonic() - self.last_active <= SHORTAGE_SECONDS

    def _begin_frame(self, size: int, received: memoryview) -> None:
        """Give a large frame its own buffer; ``received`` are its first bytes, length prefix included."""
        room = room_for(len(received) - 4, size)
        if not self.processor.memory.reserve(self, room, size):
            self._held = bytes(received)
            self._wait_for_memory()
            return
        self._frame = LargeFrame(self.processor.pool, room, size, received[4:])

    def _grow(self, frame: LargeFrame) -> bool:
        """Make room for more of the frame; False: wait for memory first."""
        room = room_for(frame.filled, frame.size)
        if not self.processor.memory.grow(self, room - frame.room):
            self._wait_for_memory()
            return False
        frame.grow(room)
        return True

    def _wait_for_memory(self) -> None:
        self._waiting_for_memory = True
        self.processor.memory.wait(self)
        self._hold_reading()

    def _frame_complete(self, frame: LargeFrame) -> None:
        self._frame = None
        self._deadline = 0.0
        self.waiting_since = 0.0
        try:
            self._handle(frame.view[: frame.size])
        finally:
            frame.release()
            if self._long:
                self._keeps_memory = True
            else:
                self.processor.memory.release(self)
        if self._must_hold:
            self._hold_reading()

    def on_memory(self) -> None:
        """Called when there may be memory for the frame that waits for it."""
        self._waiting_for_memory = False
        if self._frame is None or self._grow(self._frame):
            self._resume_reading()

    def _hold_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._stopped_at = self.processor.clock.monotonic()
            self.processor.loop.remove_reader(self.fd)
            if self._frame is not None:
                self.processor.memory.excuse(self)

    @property
    def _must_hold(self) -> bool:
        """Whether reading and serving must pause."""
        return bool(
            self._out
            or (self._pending and self._parks_enough)
            or self._queued_bytes > QUEUED_RESPONSE_BYTES
            or self._waiting_for_memory
            or self._throttled is not None
            or self._long
            or self._stopping
            or self.closed
        )

    @property
    def _parks_enough(self) -> bool:
        count, processor = len(self._pending), self.processor
        return count >= processor.max_parked or (count >= FEW_PARKED and processor.parked >= MOST_PARKED)

    def _resume_reading(self) -> None:
        """Continue reading unless it must still pause; bytes received meanwhile are served first."""
        if self._reading or self._must_hold:
            return
        if len(self._held) < 4:
            self.start()
        else:
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        if not self._serves_soon:
            self._serves_soon = True
            self.processor.backlog.add(self)

    def serve_held(self) -> None:
        """Go on with what has been received, or can be. Called by :class:`.Backlog`."""
        self._serves_soon = False
        if self._reading or self._must_hold:
            return
        unread = self._unread
        try:
            self.start()
            if unread:
                self._on_readable()
                return
            held = self._held
            self._held = b""
            self.waiting_since = self._received_at
            # From a copy: handlers may write into the frame.
            self._serve(memoryview(bytearray(held)), len(held))
        except Exception as error:
            self._close_on_error(error)

    def _handle(self, frame: memoryview) -> None:
        reply = self.processor.service.handle(self, frame)
        if reply is None:
            return
        if isinstance(reply, PendingResponse):
            if self.closed:
                if reply.abandon is not None:
                    reply.abandon()
                return
            self._pending.append(reply)
            self.processor.parked += 1
            reply.put(self)
        elif self._pending:
            finished = PendingResponse()
            finished.parts, finished.ready = reply, True
            finished.size = sum(map(len, reply))  # type: ignore[arg-type]
            finished.held = _memory_of(reply)
            self._queued_bytes += finished.size
            self._queued_held += finished.held
            self._pending.append(finished)
            self.processor.parked += 1
            self._count_answers()
        else:
            self._send(reply)

    def on_response_ready(self) -> None:
        """Send the responses that are ready, up to the first that is pending."""
        pending = self._pending
        if pending and pending[0].ready:
            self.last_active = self.processor.clock.monotonic()
        elif pending:
            self._count_queued()
        while pending and pending[0].ready and not self.closed:
            response = pending.popleft()
            self.processor.parked -= 1
            self._queued_bytes -= response.size
            self._queued_held -= response.held
            if response.parts is not None:
                self._send(response.parts)
        if self._counted:
            self._count_answers()
        if not self._reading:
            self._resume_reading()

    def _count_queued(self) -> None:
        """Count the responses that are ready but wait for an earlier one; stop reading if they are too large."""
        for response in self._pending:
            if response.ready and response.parts and not response.size:
                response.size = sum(map(len, response.parts))  # type: ignore[arg-type]
                response.held = _memory_of(response.parts)
                self._queued_bytes += response.size
                self._queued_held += response.held
        self._count_answers()
        if self._must_hold:
            self._hold_reading()

    def _send(self, parts: Parts) -> None:
        if self._out:
            self._out.extend(parts)
            self._owed += _memory_of(parts)
            self._count_answers()
            return
        if len(parts) == 1:
            head = parts[0]
            try:
                n = self.sock.send(head)  # type: ignore[arg-type]
            except BlockingIOError:
                n = 0
            except OSError as error:
                self._close_on_socket_error(error)
                return
            self.processor.sent_bytes += n
            if n == len(head):  # type: ignore[arg-type]
                return
            self._out.append(memoryview(head)[n:])  # type: ignore[arg-type]
            self._owed = self.taken + len(head) - n  # type: ignore[arg-type]
        else:
            self._out.extend(parts)
            self._drain()
            if self._out:
                self._owed = self.taken + _memory_of(self._out)
        if self._out and not self.closed:
            self._count_answers()
            self._start_writing()

    def _count_answers(self) -> None:
        """Have the bytes of answers counted that the client doesn't take yet."""
        held = self._queued_held + (self._owed - self.taken if self._out else 0)
        if held > SMALL_ANSWERS:
            self._counted = True
            self.processor.memory.answers.hold(self, held)
        elif self._counted:
            self._counted = False
            self.processor.memory.answers.hold(self, 0)

    def _start_writing(self) -> None:
        if not self._writing:
            if not self._waiting_for_piece:
                self._writing = True
                self.processor.loop.add_writer(self.fd, self._on_writable)
            self._hold_reading()

    def _on_writable(self) -> None:
        self.last_active = self.processor.clock.monotonic()
        self._drain()
        if self._counted and not self.closed:
            self._count_answers()
        if not self._out and not self.closed:
            self._writing = False
            self.processor.loop.remove_writer(self.fd)
            self._resume_reading()

    def _drain(self) -> None:
        """Send as much as the socket takes, up to the budget."""
        out = self._out
        processor = self.processor
        budget = SEND_BUDGET
        try:
            while out and budget > 0:
                head = out[0]
                if isinstance(head, FileSlice) and head.size > COPIED_BYTES:
                    n = self._send_file(head, min(head.size, budget))
                    if n == 0:
                        self._ended_early(head)
                        return
                    processor.sendfile_bytes += n
                    self._owed += n
                    if n == head.size:
                        out.popleft()
                    else:
                        head.position += n
                        head.size -= n
                else:
                    # Everything before the next large slice or stream goes out in one call, in one packet with it.
                    batch: list[bytes | bytearray | memoryview] = []
                    more, room = 0, COPIED_BYTES
                    for at, part in enumerate(out):
                        if not isinstance(part, _IN_MEMORY):
                            if not isinstance(part, FileSlice) or part.size > room:
                                more = socket.MSG_MORE
                                break
                            copied = part.read()
                            if len(copied) < part.size:
                                self._ended_early(part)
                                return
                            self._owed += part.size
                            out[at] = part = copied
                        room -= len(part)
                        batch.append(part)
                        if len(batch) == 64:
                            break
                    if not batch:
                        if not self._begin_piece(head):
                            return
                        continue
                    n = sent = self.sock.sendmsg(batch, [], more)
                    for piece in batch:
                        if sent < len(piece):
                            if sent:
                                out[0] = memoryview(piece)[sent:]
                            break
                        sent -= len(piece)
                        out.popleft()
                budget -= n
                processor.sent_bytes += n
                self.taken += n
        except BlockingIOError:
            return
        except OSError as error:
            self._close_on_socket_error(error)

    def _ended_early(self, part: FileSlice) -> None:
        """Close, because a file is shorter than announced: nothing valid can follow in this response."""
        _log.error("a segment ended early", file=part.file.path, position=part.position)
        self.close("a segment file ended before the data that was announced")

    def _send_file(self, part: FileSlice, count: int) -> int:
        return os.sendfile(self.fd, part.fd, part.position, count)

    def _begin_piece(self, part: object) -> bool:
        """Put a stream's next piece before it; False: wait until the piece is there."""
        assert isinstance(part, StreamedPart)
        if not len(part):
            self._out.popleft()
            return True
        piece = part.take(self._on_piece)
        if piece is None:
            self._waiting_for_piece = True
            if self._writing:
                self._writing = False
                self.processor.loop.remove_writer(self.fd)
            return False
        self._owed += len(piece)
        if len(part):
            self._out.appendleft(piece)
        else:
            # Nothing is left behind the last piece, or it would wait for more to go out with.
            self._out[0] = piece
        return True

    def _on_piece(self) -> None:
        """Called when the piece is there that the response goes on with."""
        self._waiting_for_piece = False
        if not self.closed:
            self._start_writing()

    @property
    def waits(self) -> bool:
        """Whether the client waits for a response, so that it isn't idle."""
        return bool(self._pending)

    @property
    def busy(self) -> bool:
        """Whether a response is pending or being sent."""
        return bool(self._pending or self._out)

    @property
    def pending_requests(self) -> int:
        """Requests whose responses wait: for data, for replicas, or for those before them."""
        return len(self._pending)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses that the client doesn't take yet."""
        return sum(map(len, self._out)) if self._out else 0  # type: ignore[arg-type]

    def cut(self) -> None:
        """Shut the socket down, on any thread."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self, reason: str | None) -> None:
        """Close the socket and abandon pending requests. ``reason`` is logged; None if the client just left."""
        if self.closed:
            return
        self.closed = True
        loop = self.processor.loop
        if self._reading:
            loop.remove_reader(self.fd)
        if self._writing:
            loop.remove_writer(self.fd)
        self._reading = self._writing = False
        if self._throttled is not None:
            self._throttled.cancel()
        self.sock.close()
        # Detached first: abandoning one request may complete others of this connection.
        pending, self._pending = self._pending, deque()
        self.processor.parked -= len(pending)
        for part in self._out:
            if isinstance(part, StreamedPart):
                part.close()
        self._out.clear()
        if self._counted:
            self._counted = False
            self.processor.memory.answers.hold(self, 0)
        self._held = b""
        if self._waiting_for_memory:
            self.processor.memory.forget(self)
        if self._frame is not None:
            self._frame = None
            self.processor.memory.release(self)
        for response in pending:
            if response.abandon is not None:
                response.abandon()
        on_close, self.on_close = self.on_close, {}
        for callback in on_close.values():
            callback()
        self.processor.forget(self)
        if reason is not None:
            _closed_log.warning(
                "connection closed",
                reason=reason,
                connection=self.id,
                client_id=self.client_id,
                listener=self.listener,
            )
