"""TLS over a connection's non-blocking socket, with the socket's own calls.

OpenSSL reads and writes the socket itself (no copies through memory buffers): docs/decisions/0016.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ottla_broker.network.openssl import clear_auto_retry

_PART_OF_MANY: Final = 4096
"""After a record of at least this size, more of the same message is likely to have arrived."""
_JOINED_BYTES: Final = 128 * 1024
"""Parts of responses are joined up to this size."""
_CHUNK_BYTES: Final = 128 * 1024
"""Bytes of a file that are read at once."""

_MOST_STUCK: Final = 1000
"""Reads, one after another, that end because the client doesn't take what OpenSSL has to answer first."""

_WAIT: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
_ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)


class TlsSocket:
    """The calls that a connection uses; they raise BlockingIOError when the socket takes or has nothing.

    After that, OpenSSL may hold the first record of what was to be sent: the next call must send the same bytes again,
    perhaps with more behind them, as :class:`.connection.Connection` does.

    Owned by the loop thread.
    """

    __slots__ = ("_chunk", "_chunk_at", "_has_ended", "_sock", "_stuck")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._stuck = 0
        # OpenSSL has read the client's goodbye.
        self._has_ended = False
        clear_auto_retry(sock)
        # What a blocked send of a file left, and where in which file it is.
        self._chunk = memoryview(b"")
        self._chunk_at = (-1, -1)

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def pending(self) -> bool:
        """Whether decrypted bytes, or the end, are not received: the event loop doesn't report those."""
        return self._has_ended or self._sock.pending() > 0

    def recv_into(self, buffer: memoryview, size: int = 0) -> int:
        """Receive up to ``size`` bytes, or as many as the buffer takes; 0 at the end.

        BlockingIOError may also mean that a record was something else than data: the socket is readable, then, if more
        has arrived. Raises ConnectionResetError if the client asks for new keys and doesn't take the answers.
        """
        if self._has_ended:
            return 0
        sock, total = self._sock, 0
        size = size or len(buffer)
        try:
            while total < size:
                n = sock.recv_into(buffer[total:size], size - total)
                total += n
                if not n:
                    self._has_ended = True
                    break
                if n < _PART_OF_MANY and not sock.pending():
                    break
        except ssl.SSLWantReadError:
            if not total:
                self._stuck = 0
                raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            if not total:
                # The event loop calls again at once, as the socket stays readable.
                self._stuck += 1
                if self._stuck > _MOST_STUCK:
                    raise ConnectionResetError("the client doesn't take TLS's answers") from None
                raise BlockingIOError from None
        except _ENDED:
            self._has_ended = True
            return total
        self._stuck = 0
        return total

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Send as many bytes as the socket takes, a record at a time."""
        sock, total = self._sock, 0
        view = memoryview(data)
        size = len(view)
        try:
            while total < size:
                total += sock.send(view[total:])
        except _WAIT:
            if not total:
                raise BlockingIOError from None
        except _ENDED:
            raise ConnectionResetError from None
        return total

    def sendmsg(
        self, buffers: Sequence[bytes | bytearray | memoryview], _ancillary: object = (), _flags: int = 0
    ) -> int:
        """Send the beginning of several buffers."""
        if len(buffers) == 1:
            return self.send(buffers[0])
        joined: list[bytes | bytearray | memoryview] = []
        size = 0
        for buffer in buffers:
            joined.append(buffer)
            size += len(buffer)
            if size >= _JOINED_BYTES:
                break
        return self.send(b"".join(joined))

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        """Send a part of a file; 0 if the file ends there."""
        if self._chunk_at != (descriptor, position) or not self._chunk:
            self._chunk = memoryview(os.pread(descriptor, min(count, _CHUNK_BYTES), position))
        self._chunk_at = (descriptor, position)
        n = self.send(self._chunk[:count])
        self._chunk = self._chunk[n:]
        self._chunk_at = (descriptor, position + n)
        return n

    def shutdown(self, how: int, /) -> None:
        """Shut the connection down without a goodbye, on any thread: TLS's own state is the loop's."""
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        """Say goodbye, if the client takes it, and close the socket."""
        self._chunk = memoryview(b"")
        with suppress(OSError, ValueError):
            self._sock.unwrap()
        with suppress(OSError):
            # unwrap() of a client that has said goodbye detaches the socket, whose copy is closed with it.
            self._sock.close()


def as_server(sock: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection's socket over TLS, before the handshake."""
    return context.wrap_socket(
        sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
    )
