"""One exchange of HTTP/1.1 (RFC 9112) without its socket: a request, and a response of bounded size.

For the keys and tokens of OAuth providers. A redirect isn't followed: it would take secrets elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

MAX_HEAD: Final = 16 * 1024
MAX_BODY: Final = 256 * 1024
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?")
_LENGTH: Final = re.compile(rb"[0-9]{1,9}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,6})(?:[ \t]*;[^\r\n]*)?\r\n")
_MOST_OF_CHUNK: Final = 1024
"""Bytes of a chunk's size and what follows it in its line."""
_END: Final = b"\r\n\r\n"


class HttpError(Exception):
    """No usable response. The message names the URL's host, never a secret."""


class Address(NamedTuple):
    """The parts of an ``http:`` or ``https:`` URL."""

    tls: bool
    host: str
    port: int
    target: str

    @property
    def where(self) -> str:
        """For messages: without the path, which may have secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}"


def provider_tls(authorities: str | None) -> ssl.SSLContext:
    """The TLS of connections to an OAuth provider: ``authorities`` is a PEM file, None for the system's.

    Raises HttpError for a file that can't be used.
    """
    import ssl

    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise HttpError(f"{authorities}: {error.strerror or error}; a PEM file is needed") from error


def parse_url(url: str) -> Address:
    """Raises ValueError for a URL that isn't ``http:`` or ``https:``, or that has a user and password."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("is not an http: or https: URL")
    if parts.username is not None:
        raise ValueError("has a user name, which belongs into other settings")
    tls = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or not target.isprintable() or " " in target:
        raise ValueError("has a path with characters that must be written as %XX")
    return Address(tls, parts.hostname, parts.port or (443 if tls else 80), target)


def encode_request(
    address: Address, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
) -> bytes:
    """A request after whose response the server closes the connection."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    fields = {
        "Host": f"{host}:{address.port}",
        "Connection": "close",
        "Accept": "application/json",
        "User-Agent": "ottla",
        **(headers or {}),
    }
    if body or method == "POST":
        fields["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {address.target} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body


class ResponseReader:
    """Reads a response as its bytes arrive.

    Attributes:
        status: such as 200; ``body`` is whole once ``complete``.
    """

    def __init__(self, address: Address) -> None:
        self.status = 0
        self.body = b""
        self.complete = False
        self._where = address.where
        self._data = bytearray()
        self._chunks: list[bytes] = []
        self._taken = 0
        self._headers: dict[bytes, bytes] | None = None

    def feed(self, data: bytes) -> None:
        """More bytes. Raises HttpError for a response that is too large or malformed."""
        self._data += data
        if self._headers is None:
            end = self._data.find(_END)
            if end < 0:
                if len(self._data) > MAX_HEAD:
                    raise HttpError(
                        f"{self._where}: the head of its response is larger than {MAX_HEAD} bytes"
                    )
                return
            self._parse_head(bytes(self._data[:end]))
            del self._data[: end + len(_END)]
        if len(self._data) > 2 * MAX_BODY:
            raise HttpError(f"{self._where}: its response is larger than {MAX_BODY} bytes")
        self._read_body(at_end=False)

    def end(self) -> None:
        """The server has closed the connection. Raises HttpError for an incomplete response."""
        if self._headers is not None and not self.complete:
            self._read_body(at_end=True)
        if not self.complete:
            raise HttpError(f"{self._where}: the connection closed before the end of its response")

    def _parse_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        match = _STATUS.fullmatch(first)
        if match is None:
            raise HttpError(f"{self._where}: does not speak HTTP/1.1")
        self.status = int(match[1])
        pairs = (line.partition(b":") for line in lines)
        self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}

    def _read_body(self, *, at_end: bool) -> None:
        assert self._headers is not None
        if b"chunked" in self._headers.get(b"transfer-encoding", b"").lower():
            self._read_chunks()
            return
        length = self._headers.get(b"content-length")
        if length is not None:
            if _LENGTH.fullmatch(length) is None or int(length) > MAX_BODY:
                raise HttpError(f"{self._where}: its response is larger than {MAX_BODY} bytes")
            if len(self._data) >= int(length):
                self._finish(bytes(self._data[: int(length)]))
        elif len(self._data) > MAX_BODY:
            raise HttpError(f"{self._where}: its response is larger than {MAX_BODY} bytes")
        elif at_end:
            self._finish(bytes(self._data))

    def _read_chunks(self) -> None:
        """Take whole chunks. Each is looked at once: a server may send them one at a time."""
        position = 0
        while (match := _CHUNK.match(self._data, position, position + _MOST_OF_CHUNK)) is not None:
            size = int(match[1], 16)
            start = match.end()
            if not size:
                self._finish(b"".join(self._chunks))
                return
            if start + size + 2 > len(self._data):
                break
            self._chunks.append(bytes(self._data[start : start + size]))
            position = start + size + 2
        else:
            if len(self._data) - position >= _MOST_OF_CHUNK:
                raise HttpError(f"{self._where}: does not speak HTTP/1.1")
        del self._data[:position]
        self._taken += position
        if self._taken > 2 * MAX_BODY:
            raise HttpError(f"{self._where}: its response is larger than {MAX_BODY} bytes")

    def _finish(self, body: bytes) -> None:
        if len(body) > MAX_BODY:
            raise HttpError(f"{self._where}: its response is larger than {MAX_BODY} bytes")
        self.body, self.complete = body, True
