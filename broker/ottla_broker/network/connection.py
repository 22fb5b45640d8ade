"""One client's socket: frames in, answers out, in order.

Reading. What arrives goes into a scratch buffer that all connections of a processor share; whole frames are served
right out of it. A frame that is not complete yet gets a buffer of its own size, and the rest of it is received straight
into that. Between requests a connection holds no buffer.

Writing. An answer is sent at once; what the socket does not take waits in ``_out``, and until it is gone nothing more
is read from this client: a reader too slow for its data holds back itself and nobody else. The same holds while many
requests, or large answers behind one that waits, stand in the row.

Requests are served in callbacks of the event loop only, never inside what another connection's request set off: a
coordinator that answers its members one by one must not find a member's next request in the middle of that.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from ottla_broker.events import get_logger
from ottla_broker.log.files import FileSlice
from ottla_broker.network.pending_response import CloseConnection, PendingResponse
from ottla_broker.network.service import ANONYMOUS, Parts, Principal

if TYPE_CHECKING:
    import asyncio

    from ottla_broker.clock import Clock
    from ottla_broker.network.request_memory import BufferPool, RequestMemory
    from ottla_broker.network.service import Service

_log = get_logger()

READ_BUDGET = 4 * 1024 * 1024
"""Bytes read from one connection before the others get their turn."""
SEND_BUDGET = 4 * 1024 * 1024
"""Bytes sent to one connection before the others get their turn."""
REQUESTS_PER_TURN = 64
"""Requests served from one connection before the others get their turn."""
ROW_BYTES = 1024 * 1024
"""Bytes of finished answers that may stand behind one that waits; beyond that nothing is read."""

FIRST_BUFFER = 64 * 1024
"""Bytes of the buffer that a large frame gets when nothing of it has come."""
QUICK_GROWTH = 4 * 1024 * 1024
"""A frame's buffer grows to eight times what has come up to this, to twice as much beyond it."""
FRAME_SECONDS = 30.0
LEAST_BYTES_PER_SECOND = 16 * 1024
"""A frame that has begun has to be complete after ``FRAME_SECONDS``, unless it comes at this rate at least."""

_SIZE = Struct(">i")
_unpack_size = _SIZE.unpack_from


def _buffer_bytes(received: int, size: int) -> int:
    """How large the buffer of a frame of ``size`` bytes is: a size that is announced is only a promise."""
    return min(size, max(FIRST_BUFFER, min(8 * received, QUICK_GROWTH), 2 * received))


def _what_was_said(size: int) -> str:
    """What to do about an absurd size whose four bytes begin another protocol; empty where they begin none."""
    said = size.to_bytes(4, "big", signed=True)
    if said[:2] == b"\x16\x03":  # a TLS record: handshake, version 3.x
        return "; the client speaks TLS, this listener is PLAINTEXT: set the client's security.protocol to PLAINTEXT"
    if said in (b"GET ", b"POST", b"PUT ", b"HEAD"):
        return "; the client speaks HTTP, this listener Kafka's protocol: point the client elsewhere"
    return ""


class Owner(Protocol):
    """The processor that a connection belongs to.

    Attributes:
        scratch: the buffer that its connections share.
        max_request_bytes: the largest frame that is accepted.
        max_parked: requests of one connection that may wait for their answers.
    """

    loop: asyncio.AbstractEventLoop
    clock: Clock
    service: Service
    memory: RequestMemory
    pool: BufferPool
    scratch: memoryview
    max_request_bytes: int
    max_parked: int

    def forget(self, connection: Connection) -> None:
        """Called by a connection that has closed."""
        ...


class Connection:
    """Owned by its processor, on the loop thread; nobody else changes it."""

    __slots__ = (
        "_begun",
        "_filled",
        "_frame",
        "_frame_buffer",
        "_frame_room",
        "_frame_size",
        "_held",
        "_out",
        "_pending",
        "_reading",
        "_row_bytes",
        "_stopping",
        "_waiting_for_memory",
        "_writing",
        "client_host",
        "client_id",
        "closed",
        "fd",
        "id",
        "last_active",
        "listener",
        "principal",
        "processor",
        "sock",
    )

    def __init__(
        self, processor: Owner, sock: socket.socket, client_host: str, connection_id: str, listener: str
    ) -> None:
        self.processor = processor
        self.sock = sock
        self.fd = sock.fileno()
        self.client_host = client_host
        self.client_id: str | None = None
        self.id = connection_id
        self.listener = listener
        self.principal: Principal = ANONYMOUS
        self.closed = False
        self.last_active = processor.clock.monotonic()
        self._pending: deque[PendingResponse] = deque()
        self._row_bytes = 0
        self._out: deque[object] = deque()
        # Received but not served yet: the start of a frame, or whole frames while reading is held back.
        self._held = b""
        # A frame on its way into a buffer of its own.
        self._frame_buffer: bytearray | None = None
        self._frame: memoryview | None = None
        self._frame_size = 0
        # Bytes of it that the buffer has room for, and those that have come.
        self._frame_room = 0
        self._filled = 0
        # When reading of a frame began that isn't complete; 0 for none.
        self._begun = 0.0
        self._reading = False
        self._writing = False
        self._stopping = False
        self._waiting_for_memory = False

    def start(self) -> None:
        """Begin to read. Raises OSError when the system can watch no more sockets."""
        self.processor.loop.add_reader(self.fd, self._on_readable)
        self._reading = True
        if self._begun:
            # The time in which this broker didn't read is not the client's.
            self._begun = self.processor.clock.monotonic()

    def stop_reading(self) -> None:
        """Take no more requests; those that have been taken are answered."""
        self._stopping = True
        self._hold_reading()

    def _on_readable(self) -> None:
        processor = self.processor
        self.last_active = processor.clock.monotonic()
        try:
            if self._frame is None:
                scratch = processor.scratch
                held = self._held
                have = len(held)
                if have:
                    scratch[:have] = held
                n = self.sock.recv_into(scratch[have:] if have else scratch)
                if n == 0:
                    self.close(None)
                    return
                self._held = b""
                self._serve(scratch, have + n)
            budget = READ_BUDGET
            while self._frame is not None and budget > 0:
                wanted = self._frame_room - self._filled
                n = self.sock.recv_into(self._frame[self._filled :], wanted)
                if n == 0:
                    self.close(None)
                    return
                self._filled += n
                budget -= n
                if n < wanted:
                    # A short read has emptied the socket; the loop calls again when there is more.
                    return
                if self._filled == self._frame_size:
                    self._frame_complete()
                elif not self._grow_frame():
                    return
        except BlockingIOError:
            return
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        """Close after what went wrong while requests were received or served."""
        if isinstance(error, CloseConnection):
            self.close(str(error))
        elif isinstance(error, OSError):
            self._broke(error)
        else:
            # A defect of ours: this client pays for it, nobody else.
            _log.error("a connection failed", connection=self.id, client_id=self.client_id, exc_info=error)
            self.close("a defect in the broker, see above")

    def _broke(self, error: OSError) -> None:
        """Close after an error of the socket. Clients leave with answers on their way to them; that is no news."""
        left = isinstance(error, ConnectionResetError | BrokenPipeError)
        self.close(None if left else f"the connection broke: {error.strerror or error}")

    def _serve(self, data: memoryview, end: int) -> None:
        """Serve the whole frames in ``data[:end]`` and keep what is left."""
        position = 0
        turn = REQUESTS_PER_TURN
        largest = self.processor.max_request_bytes
        while end - position >= 4:
            (size,) = _unpack_size(data, position)
            if not 0 <= size <= largest:
                raise CloseConnection(
                    f"a frame of {size} bytes was announced, allowed are 0 to {largest} (socket.request.max.bytes)"
                    + _what_was_said(size)
                )
            if self._must_hold:
                break
            stop = position + 4 + size
            if stop > end:
                if size + 4 > len(self.processor.scratch) - 4 or end - position > 4096:
                    self._begin_frame(size, data[position:end])
                    return
                break
            if not turn:
                # Others first; what is held is served in a later turn.
                self._held = bytes(data[position:end])
                self._hold_reading()
                self._resume_reading()
                return
            turn -= 1
            self._handle(data[position + 4 : stop])
            if self.closed:
                return
            position = stop
        if position < end:
            self._held = bytes(data[position:end])
            if position or not self._begun:
                self._begun = self.last_active
        else:
            self._begun = 0.0
        if self._must_hold:
            self._hold_reading()

    def is_stalled(self, now: float) -> bool:
        """Whether the client has begun a frame and doesn't go on with it."""
        return (
            self._reading
            and self._begun > 0
            and now - self._begun > FRAME_SECONDS + self._filled / LEAST_BYTES_PER_SECOND
        )

    def _begin_frame(self, size: int, received: memoryview) -> None:
        """Give a large frame a buffer of its own; ``received`` is what has come of it, its prefix included."""
        n = len(received) - 4
        room = _buffer_bytes(n, size)
        if not self.processor.memory.reserve(room):
            self._held = bytes(received)
            self._wait_for_memory()
            return
        buffer = self.processor.pool.take(room)
        frame = memoryview(buffer)
        frame[:n] = received[4:]
        self._frame_buffer, self._frame, self._frame_size, self._filled = buffer, frame, size, n
        self._frame_room = room
        self._begun = self.last_active

    def _grow_frame(self) -> bool:
        """Make room for more of the frame, or wait until there is memory for it."""
        room = _buffer_bytes(self._filled, self._frame_size)
        if not self.processor.memory.grow(self, room - self._frame_room):
            self._wait_for_memory()
            return False
        assert self._frame_buffer is not None
        self._frame_room = room
        if room > len(self._frame_buffer):
            old, self._frame_buffer = self._frame_buffer, self.processor.pool.take(room)
            self._frame = memoryview(self._frame_buffer)
            self._frame[: self._filled] = memoryview(old)[: self._filled]
            self.processor.pool.give_back(old)
        return True

    def _wait_for_memory(self) -> None:
        self._waiting_for_memory = True
        self.processor.memory.wait(self._on_memory)
        self._hold_reading()

    def _frame_complete(self) -> None:
        frame, buffer, size = self._frame, self._frame_buffer, self._frame_size
        assert frame is not None
        assert buffer is not None
        self._frame = self._frame_buffer = None
        self._filled = 0
        self._begun = 0.0
        try:
            self._handle(frame[:size])
        finally:
            self.processor.pool.give_back(buffer)
            self.processor.memory.release(self, self._frame_room)
        if self._must_hold:
            self._hold_reading()

    def _on_memory(self) -> None:
        self._waiting_for_memory = False
        if self._frame is None or self._grow_frame():
            self._resume_reading()

    def _hold_reading(self) -> None:
        if self._reading:
            self._reading = False
            self.processor.loop.remove_reader(self.fd)

    @property
    def _must_hold(self) -> bool:
        """Whether nothing may be read or served now."""
        return bool(
            self._out
            or len(self._pending) >= self.processor.max_parked
            or self._row_bytes > ROW_BYTES
            or self._waiting_for_memory
            or self._stopping
            or self.closed
        )

    def _resume_reading(self) -> None:
        """Go on reading if nothing holds it back any more; what was received meanwhile comes first."""
        if self._reading or self._must_hold:
            return
        if len(self._held) < 4:
            self.start()
        else:
            self.processor.loop.call_soon(self._serve_held)

    def _serve_held(self) -> None:
        if self._reading or self._must_hold:
            return
        self.start()
        held = self._held
        self._held = b""
        try:
            # The frames are served from a copy: the handlers may write into what they get.
            self._serve(memoryview(bytearray(held)), len(held))
        except Exception as error:
            self._break(error)

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
            reply.put(self)
        elif self._pending:
            finished = PendingResponse()
            finished.parts, finished.ready = reply, True
            finished.size = sum(map(len, reply))  # type: ignore[arg-type]
            self._row_bytes += finished.size
            self._pending.append(finished)
        else:
            self._send(reply)

    def on_response_ready(self) -> None:
        """Send the responses that are next in order and have come."""
        pending = self._pending
        if pending and pending[0].ready:
            self.last_active = self.processor.clock.monotonic()
        while pending and pending[0].ready and not self.closed:
            response = pending.popleft()
            self._row_bytes -= response.size
            if response.parts is not None:
                self._send(response.parts)
        if not self._reading:
            self._resume_reading()

    def _send(self, parts: Parts) -> None:
        if self._out:
            self._out.extend(parts)
            return
        if len(parts) == 1:
            head = parts[0]
            try:
                n = self.sock.send(head)  # type: ignore[arg-type]
            except BlockingIOError:
                n = 0
            except OSError as error:
                self._broke(error)
                return
            if n == len(head):  # type: ignore[arg-type]
                return
            self._out.append(memoryview(head)[n:])  # type: ignore[arg-type]
        else:
            self._out.extend(parts)
            self._drain()
        if self._out and not self.closed:
            self._start_writing()

    def _start_writing(self) -> None:
        if not self._writing:
            self._writing = True
            self.processor.loop.add_writer(self.fd, self._on_writable)
            self._hold_reading()

    def _on_writable(self) -> None:
        self.last_active = self.processor.clock.monotonic()
        self._drain()
        if not self._out and not self.closed:
            self._writing = False
            self.processor.loop.remove_writer(self.fd)
            self._resume_reading()

    def _drain(self) -> None:
        """Send what the socket takes, up to the budget."""
        out = self._out
        budget = SEND_BUDGET
        try:
            while out and budget > 0:
                head = out[0]
                if isinstance(head, FileSlice):
                    n = os.sendfile(self.fd, head.fd, head.position, min(head.size, budget))
                    if n == 0:
                        # The file is shorter than the slice said: nothing sensible can follow in this response.
                        _log.error("a segment ended early", file=head.file.path, position=head.position)
                        self.close("a segment file ended before the data that was announced")
                        return
                    budget -= n
                    if n == head.size:
                        out.popleft()
                    else:
                        head.position += n
                        head.size -= n
                else:
                    # Everything up to the next file slice goes out in one call, held together with what follows.
                    batch = []
                    more = 0
                    for part in out:
                        if isinstance(part, FileSlice):
                            more = socket.MSG_MORE
                            break
                        batch.append(part)
                        if len(batch) == 64:
                            break
                    n = self.sock.sendmsg(batch, [], more)  # type: ignore[arg-type]
                    budget -= n
                    while n:
                        size = len(out[0])  # type: ignore[arg-type]
                        if n < size:
                            out[0] = memoryview(out[0])[n:]  # type: ignore[arg-type]
                            break
                        n -= size
                        out.popleft()
                    while out and not isinstance(out[0], FileSlice) and not len(out[0]):  # type: ignore[arg-type]
                        out.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(error)

    @property
    def waits(self) -> bool:
        """Whether the client waits for a parked request: it is not idle."""
        return bool(self._pending)

    @property
    def busy(self) -> bool:
        """Whether a request is being waited for or answered."""
        return bool(self._pending or self._out)

    def close(self, reason: str | None) -> None:
        """Close the socket and let go of what waits for it; ``reason`` is logged unless the client just left."""
        if self.closed:
            return
        self.closed = True
        loop = self.processor.loop
        if self._reading:
            loop.remove_reader(self.fd)
        if self._writing:
            loop.remove_writer(self.fd)
        self._reading = self._writing = False
        self.sock.close()
        # Taken away first: what is abandoned may answer others, and some of those may be in this row.
        pending, self._pending = self._pending, deque()
        self._out.clear()
        self._held = b""
        if self._waiting_for_memory:
            self.processor.memory.forget(self._on_memory)
        if self._frame_buffer is not None:
            self._frame = self._frame_buffer = None
            self.processor.memory.release(self, self._frame_room)
        for response in pending:
            if response.abandon is not None:
                response.abandon()
        self.processor.forget(self)
        if reason is not None:
            _log.warning(
                "connection closed",
                reason=reason,
                connection=self.id,
                client_id=self.client_id,
                listener=self.listener,
            )
