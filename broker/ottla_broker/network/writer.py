"""The responses of a connection on their way out.

A response is sent at once, in one call where it is short: small slices of files are read for that, large ones sent by
``sendfile``. Bytes that the socket doesn't take wait in ``out``, and nothing more is read from this client until they
are gone: a slow reader holds back only itself.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from ottla_broker.events import get_logger
from ottla_broker.log.files import FileSlice
from ottla_broker.network.answer_memory import SMALL_ANSWERS
from ottla_broker.network.owner import Ends
from ottla_broker.network.service import Parts
from ottla_broker.network.streamed_part import StreamedPart

_log = get_logger()

SEND_BUDGET: Final = 4 * 1024 * 1024
"""Bytes sent to one connection in a turn of the event loop."""
COPIED_BYTES: Final = SMALL_ANSWERS
"""Slices of files up to this size, together, are read and sent with the parts around them: that takes half as long."""

NOTHING: Final[deque[object]] = deque(maxlen=0)
"""What waits for a connection with nothing to send; a deque of its own would take 600 bytes."""
_IN_MEMORY: Final = (bytes, bytearray, memoryview)
"""Parts of a response that are bytes; the others are :class:`.FileSlice` and :class:`.StreamedPart`."""

SendFile = Callable[[int, int, int], int]
"""Sends some of a file: its descriptor, a position and a count; returns the bytes taken, 0 where the file ends."""


def memory_of(parts: Iterable[object]) -> int:
    """The bytes of parts that are in memory."""
    return sum(len(part) for part in parts if isinstance(part, _IN_MEMORY))


class Writer:
    """Owned by its connection, on the loop thread.

    Attributes:
        out: what the socket hasn't taken yet.
        taken: bytes sent in several parts so far.
        watches: whether the event loop tells when the socket takes more.
    """

    __slots__ = (
        "_connection",
        "_fd",
        "_owed",
        "_processor",
        "_send_file",
        "_sock",
        "_waiting_for_piece",
        "out",
        "taken",
        "watches",
    )

    def __init__(self, connection: Ends, send_file: SendFile | None) -> None:
        """``send_file`` is the socket's own way; None: the system's."""
        self._connection = connection
        self._processor = connection.processor
        self._sock = connection.sock
        self._fd = connection.fd
        self._send_file = send_file
        self.out = NOTHING
        # ``_owed``: what ``taken`` will be when nothing in memory waits in ``out``.
        self.taken = self._owed = 0
        self.watches = False
        self._waiting_for_piece = False

    @property
    def held(self) -> int:
        """The bytes in memory that wait."""
        return self._owed - self.taken if self.out else 0

    def write(self, parts: Parts) -> None:
        """Send a response behind those that wait."""
        if self.out:
            self.out.extend(parts)
            self._owed += memory_of(parts)
            self._connection.on_written()
            return
        if len(parts) == 1:
            head = parts[0]
            try:
                n = self._sock.send(head)  # type: ignore[arg-type]
            except BlockingIOError:
                n = 0
            except OSError as error:
                self._connection.close_on_error(error)
                return
            self._processor.sent_bytes += n
            if n == len(head):  # type: ignore[arg-type]
                return
            self.out = deque((memoryview(head)[n:],))  # type: ignore[arg-type]
            self._owed = self.taken + len(head) - n  # type: ignore[arg-type]
        else:
            self.out = deque(parts)
            self._drain()
            if not self.out:
                self.out = NOTHING
            else:
                self._owed = self.taken + memory_of(self.out)
        if self.out and not self._connection.closed:
            self._start_writing()
            self._connection.on_written()

    def _start_writing(self) -> None:
        if not self.watches and not self._waiting_for_piece:
            self.watches = True
            self._processor.loop.add_writer(self._fd, self.on_writable)

    def _stop_writing(self) -> None:
        if self.watches:
            self.watches = False
            self._processor.loop.remove_writer(self._fd)

    def on_writable(self) -> None:
        """Called by the event loop when the socket takes more."""
        connection = self._connection
        connection.last_active = self._processor.clock.monotonic()
        self._drain()
        if not connection.closed:
            if not self.out:
                self.out = NOTHING
                self._stop_writing()
            connection.on_written()

    def _drain(self) -> None:
        """Send as much as the socket takes, up to the budget."""
        out = self.out
        processor = self._processor
        budget = SEND_BUDGET
        try:
            while out and budget > 0:
                head = out[0]
                if isinstance(head, FileSlice) and head.size > COPIED_BYTES:
                    count = min(head.size, budget)
                    if self._send_file is None:
                        n = os.sendfile(self._fd, head.fd, head.position, count)
                    else:
                        n = self._send_file(head.fd, head.position, count)
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
                    n = sent = self._sock.sendmsg(batch, [], more)
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
            self._connection.close_on_error(error)

    def _ended_early(self, part: FileSlice) -> None:
        """Close, because a file is shorter than announced: nothing valid can follow in this response."""
        _log.error("a segment ended early", file=part.file.path, position=part.position)
        self._connection.close("a segment file ended before the data that was announced")

    def _begin_piece(self, part: object) -> bool:
        """Put a stream's next piece before it; False: wait until the piece is there."""
        assert isinstance(part, StreamedPart)
        if not len(part):
            self.out.popleft()
            return True
        piece = part.take(self._on_piece)
        if piece is None:
            self._waiting_for_piece = True
            self._stop_writing()
            return False
        self._owed += len(piece)
        if len(part):
            self.out.appendleft(piece)
        else:
            # Nothing is left behind the last piece, or it would wait for more to go out with.
            self.out[0] = piece
        return True

    def _on_piece(self) -> None:
        """Called when the piece is there that the response goes on with."""
        self._waiting_for_piece = False
        if not self._connection.closed:
            self._start_writing()

    def stop(self) -> None:
        """Send nothing more."""
        self._stop_writing()
        for part in self.out:
            if isinstance(part, StreamedPart):
                part.close()
        self.out.clear()
