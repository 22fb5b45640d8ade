"""A client over a blocking socket that sends the protocol's messages, or raw frames."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from ottla_protocol.header import RequestHeader, encode_request_header, parse_response_header
from ottla_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla_protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla_protocol.registry import response_class


def frame(body: bytes) -> bytes:
    """Return a body preceded by its size."""
    return struct.pack(">i", len(body)) + body


def request_bytes(
    message: Any, version: int, correlation_id: int = 1, client_id: str | None = "wire"
) -> bytes:
    """Return a whole request: size, header, body."""
    header = RequestHeader(int(message.API_KEY), version, correlation_id, client_id)
    return frame(encode_request_header(header) + message.encode(version))


class Wire:
    """One connection. Every read has a deadline. Raises ConnectionError if the broker closes it."""

    def __init__(self, port: int, timeout: float = 60.0, source: str = "127.0.0.1") -> None:
        """``source`` is the client's address; all of 127.0.0.0/8 are this machine's."""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout, source_address=(source, 0))
        self._correlation = 0

    def call(self, message: Any, version: int) -> Any:
        """Send a request, and return the decoded response."""
        self._correlation += 1
        self.socket.sendall(request_bytes(message, version, self._correlation))
        data = self.receive()
        correlation, position = parse_response_header(data, int(message.API_KEY), version)
        assert correlation == self._correlation
        return response_class(int(message.API_KEY)).decode(data, version, position)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """Return one frame's body."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def is_closed(self) -> bool:
        """Whether the broker closes the connection without a response, before the deadline."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def plain_login(port: int, user: str, password: str) -> Wire:
    """A connection that has logged in by PLAIN."""
    wire = Wire(port)
    assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    message = f"\0{user}\0{password}".encode()
    assert wire.call(SaslAuthenticateRequest(auth_bytes=message), 2).error_code == 0
    return wire
