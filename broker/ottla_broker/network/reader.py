"""The requests of a connection on their way in.

Bytes go into a scratch buffer that all connections of a processor share, and whole frames are served right out of it.
A large frame that isn't complete gets its own buffer, which grows as the rest arrives. Between requests a connection
holds no buffer.

Requests are served only in callbacks of the event loop, never inside what another connection's request set off: a
coordinator that answers its members one by one must not meet a member's next request halfway.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla_broker.network.account import SHORTAGE_SECONDS
from ottla_broker.network.answers import Answers
from ottla_broker.network.backlog import PORTION_BYTES, TURN_SECONDS
from ottla_broker.network.holds import LONG, MEMORY, Holds
from ottla_broker.network.large_frame import LargeFrame, room_for
from ottla_broker.network.owner import Ends
from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.network.writer import Writer

READ_BUDGET: Final = 4 * 1024 * 1024
"""Bytes read from one connection in a turn of the event loop."""
REQUESTS_PER_TURN: Final = 64
"""Requests served from one connection in a turn of the event loop, at most for :data:`.TURN_SECONDS`."""
FIRST_REQUESTS_PER_TURN: Final = 4
"""The same for a client that hasn't authenticated."""
PROBE_BYTES: Final = 256
"""Bytes received to find out whether a client is still there."""
HELD_BYTES: Final = 4096
"""Up to this many bytes of a frame that isn't complete are kept without a buffer."""
FRAME_SECONDS: Final = 30.0
LEAST_BYTES_PER_SECOND: Final = 16 * 1024
"""A frame that falls ``FRAME_SECONDS`` behind this rate is given up; a fast beginning gives it no more time."""

_SIZE: Final = Struct(">i")
_unpack_size = _SIZE.unpack_from


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


class Reader:
    """Owned by its connection, on the loop thread.

    Attributes:
        reading: whether the event loop tells when bytes arrive.
    """

    __slots__ = (
        "_answers",
        "_connection",
        "_deadline",
        "_frame",
        "_held",
        "_holds",
        "_keeps_memory",
        "_processor",
        "_received_at",
        "_serves_soon",
        "_sock",
        "_stopped_at",
        "_unread",
        "_writer",
        "reading",
    )

    def __init__(self, connection: Ends, holds: Holds, answers: Answers, writer: Writer) -> None:
        self._connection = connection
        self._processor = connection.processor
        self._sock = connection.sock
        self._holds = holds
        self._answers = answers
        self._writer = writer
        # Received but not served: the start of a frame, or whole frames while reading is paused.
        self._held = b""
        # A frame that is being received into its own buffer, and whether it is counted until a long request ends.
        self._frame: LargeFrame | None = None
        self._keeps_memory = False
        # When the frame that isn't complete is given up; 0 for none. The progress of a large one moves it.
        self._deadline = 0.0
        self.reading = False
        self._received_at = connection.last_active
        # When reading paused last.
        self._stopped_at = 0.0
        # Whether the next turn serves what is held: once, however many responses were ready meanwhile.
        self._serves_soon = False
        # Whether bytes have arrived that are read in the connection's next turn.
        self._unread = False

    @property
    def must_hold(self) -> bool:
        """Whether reading and serving must pause."""
        answers = self._answers
        return bool(self._holds.reasons or self._writer.out or (answers.pending and answers.are_too_many))

    def start(self) -> None:
        """Start reading. Raises OSError if the system can watch no more sockets."""
        self._processor.loop.add_reader(self._connection.fd, self.on_readable)
        self.reading = True
        self._unread = False
        if self._deadline:
            # The client isn't to blame for the time in which this broker didn't read.
            self._deadline += self._processor.clock.monotonic() - self._stopped_at

    def hold(self) -> None:
        """Read nothing until :meth:`resume`."""
        if self.reading:
            self.reading = False
            self._stopped_at = self._processor.clock.monotonic()
            self._processor.loop.remove_reader(self._connection.fd)
            if self._frame is not None:
                self._processor.memory.excuse(self)

    def resume(self) -> None:
        """Continue reading unless it must still pause; bytes received meanwhile are served first."""
        if self.reading or self.must_hold:
            return
        if len(self._held) < 4:
            self.start()
        else:
            self._wait_for_turn()

    def hold_or_resume(self) -> None:
        """Read or don't, as the reasons are now."""
        if self.must_hold:
            self.hold()
        elif not self.reading:
            self.resume()

    def end_long(self) -> None:
        """Go on after the last long request."""
        if self._keeps_memory:
            self._keeps_memory = False
            self._processor.memory.release(self)
        self.resume()

    def stop(self) -> None:
        """Read nothing more, and drop what was received."""
        if self.reading:
            self.reading = False
            self._processor.loop.remove_reader(self._connection.fd)
        self._held = b""
        if self._holds.reasons & MEMORY:
            self._processor.memory.forget(self)
        if self._frame is not None:
            self._frame = None
            self._processor.memory.release(self)

    def has_left(self) -> bool:
        """Whether the client is gone, asked while nothing is read: see :meth:`.ClientConnection.has_left`.

        Requests that it has sent ahead may matter, so a client that has sent some isn't looked at again.
        """
        if self.reading or self._held or self._frame is not None:
            return False
        processor = self._processor
        try:
            n = self._sock.recv_into(processor.scratch, PROBE_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            self._connection.close_on_error(error)
            return True
        if n == 0:
            self._connection.close(None)
            return True
        processor.received_bytes += n
        self._held = bytes(processor.scratch[:n])
        # Its turn serves these bytes: there may be none left to read.
        self._unread = False
        self._received_at = processor.clock.monotonic()
        self._deadline = self._received_at + FRAME_SECONDS
        return False

    def on_readable(self) -> None:
        """Receive what has come, and serve it. Called by the event loop."""
        processor = self._processor
        now = processor.clock.monotonic()
        backlog = processor.backlog
        if now > backlog.late_after and not backlog.admit(self._connection, now):
            self._unread = True
            self.hold()
            self._wait_for_turn()
            return
        connection = self._connection
        connection.last_active = self._received_at = now
        connection.waiting_since = 0.0
        try:
            if self._frame is None:
                scratch = processor.scratch
                held = self._held
                have = len(held)
                if have:
                    scratch[:have] = held
                crowded = backlog.is_long
                n = self._sock.recv_into(scratch[have:] if have else scratch, PORTION_BYTES if crowded else 0)
                if n == 0:
                    connection.close(None)
                    return
                self._held = b""
                processor.received_bytes += n
                self._serve(scratch, have + n, crowded)
            budget = READ_BUDGET
            while (frame := self._frame) is not None and budget > 0:
                wanted = frame.room - frame.filled
                n = self._sock.recv_into(frame.view[frame.filled :], wanted)
                if n == 0:
                    connection.close(None)
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
            connection.close_on_error(error)

    def _serve(self, data: memoryview, end: int, crowded: bool = False) -> None:
        """Serve the whole frames in ``data[:end]``, one if it is crowded, and keep the rest."""
        position = 0
        connection, owner = self._connection, self._processor
        turn = most = (
            1 if crowded else REQUESTS_PER_TURN if connection.authenticated else FIRST_REQUESTS_PER_TURN
        )
        clock = owner.clock
        now = clock.monotonic()
        until = now + TURN_SECONDS
        unfinished = 0
        while end - position >= 4:
            (size,) = _unpack_size(data, position)
            largest = owner.max_request_bytes if connection.authenticated else owner.max_first_bytes
            if not 0 <= size <= largest:
                key = "socket.request.max.bytes"
                if not connection.authenticated:
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
                self.hold()
                self.resume()
                return
            turn -= 1
            self._handle(data[position + 4 : stop])
            # Whatever else has come waits for this one.
            connection.waiting_since = self._received_at
            position = stop
            if self.must_hold:
                if connection.closed:
                    return
                self.hold()
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

    def is_stalled(self, now: float) -> bool:
        """Whether the client has begun a frame and sends the rest too slowly. Asked every few seconds."""
        if not self.reading or not self._deadline:
            return False
        if self._frame is not None:
            gained = self._frame.progress() / LEAST_BYTES_PER_SECOND
            self._deadline = min(self._deadline + gained, now + FRAME_SECONDS)
        return now > self._deadline

    @property
    def received(self) -> int:
        """The bytes received of a frame with its own buffer."""
        return 0 if self._frame is None else self._frame.filled

    @property
    def is_held_up(self) -> bool:
        """Whether this broker doesn't read the frame now, though the client takes the responses before it."""
        if self.reading:
            return False
        quiet = self._processor.clock.monotonic() - self._connection.last_active
        return not self._writer.out or quiet <= SHORTAGE_SECONDS

    def _begin_frame(self, size: int, received: memoryview) -> None:
        """Give a large frame its own buffer; ``received`` are its first bytes, length prefix included."""
        room = room_for(len(received) - 4, size)
        if not self._processor.memory.reserve(self, room, size):
            self._held = bytes(received)
            self._wait_for_memory()
            return
        self._frame = LargeFrame(self._processor.pool, room, size, received[4:])

    def _grow(self, frame: LargeFrame) -> bool:
        """Make room for more of the frame; False: wait for memory first."""
        room = room_for(frame.filled, frame.size)
        if not self._processor.memory.grow(self, room - frame.room):
            self._wait_for_memory()
            return False
        frame.grow(room)
        return True

    def _wait_for_memory(self) -> None:
        self._holds.add(MEMORY)
        self._processor.memory.wait(self)
        self.hold()

    def _frame_complete(self, frame: LargeFrame) -> None:
        self._frame = None
        self._deadline = 0.0
        self._connection.waiting_since = 0.0
        try:
            self._handle(frame.view[: frame.size])
        finally:
            frame.release()
            if self._holds.reasons & LONG:
                self._keeps_memory = True
            else:
                self._processor.memory.release(self)
        if self.must_hold:
            self.hold()

    def on_memory(self) -> None:
        """Called when there may be memory for the frame that waits for it."""
        self._holds.remove(MEMORY)
        if self._frame is None or self._grow(self._frame):
            self.resume()

    def _wait_for_turn(self) -> None:
        if not self._serves_soon:
            self._serves_soon = True
            self._processor.backlog.add(self._connection)

    def serve_held(self) -> None:
        """Go on with what has been received, or can be. Called by :class:`.Backlog`."""
        self._serves_soon = False
        if self.reading or self.must_hold:
            return
        unread = self._unread
        try:
            self.start()
            if unread:
                self.on_readable()
                return
            held = self._held
            self._held = b""
            self._connection.waiting_since = self._received_at
            # From a copy: handlers may write into the frame.
            self._serve(memoryview(bytearray(held)), len(held))
        except Exception as error:
            self._connection.close_on_error(error)

    def _handle(self, frame: memoryview) -> None:
        reply = self._processor.service.handle(self._connection, frame)
        if reply is not None:
            self._answers.put(reply)

    def close(self, reason: str | None) -> None:
        """Close the connection, as the memory for requests asks."""
        self._connection.close(reason)
