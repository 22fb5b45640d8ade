"""One exchange of HTTP/1.1 without its socket, by h11: a request, and a response of bounded size.

For the keys and tokens of OAuth providers. A redirect isn't followed: it would take secrets elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

    import h11

MAX_HEAD: Final = 16 * 1024
MAX_BODY: Final = 256 * 1024
_MAX_WIRE: Final = MAX_HEAD + 2 * MAX_BODY
"""Bytes of a response with all that isn't its body: a server may send chunks of one byte."""


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


class HttpExchange:
    """A request, after whose response the server closes the connection, and the response as its bytes arrive.

    Attributes:
        request: the bytes to send.
        status: such as 200; ``body`` is whole once ``complete``.
    """

    def __init__(
        self,
        address: Address,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        # Imported here because it takes 16 ms, and most starts need no HTTP.
        import h11

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
        self.address = address
        self.status = 0
        self.body = b""
        self.complete = False
        self._body = bytearray()
        self._fed = 0
        self._http = http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        sent = (
            http.send(h11.Request(method=method, target=address.target, headers=list(fields.items()))),
            http.send(h11.Data(data=body)),
            http.send(h11.EndOfMessage()),
        )
        self.request = b"".join(each or b"" for each in sent)

    def feed(self, data: bytes) -> None:
        """More bytes; none are the connection's end.

        Raises HttpError for a response that is too large, malformed or incomplete.
        """
        import h11

        self._fed += len(data)
        if self._fed > _MAX_WIRE:
            raise self._error(f"its response is larger than {MAX_BODY} bytes")
        self._http.receive_data(data)
        try:
            while not self.complete and (event := self._http.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    self._begin(event)
                elif isinstance(event, h11.Data):
                    self._body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    self.body, self.complete = bytes(self._body), True
                elif isinstance(event, h11.ConnectionClosed):
                    break
        except h11.RemoteProtocolError as error:
            if data and not self.status and error.error_status_hint == 431:
                raise self._error(f"the head of its response is larger than {MAX_HEAD} bytes") from None
            if data:
                raise self._error("does not speak HTTP/1.1") from None
        if len(self._body) > MAX_BODY:
            raise self._error(f"its response is larger than {MAX_BODY} bytes")
        if not data and not self.complete:
            raise self._error("the connection closed before the end of its response")

    def _begin(self, response: h11.Response) -> None:
        self.status = response.status_code
        length = dict(response.headers).get(b"content-length", b"0")
        if int(length) > MAX_BODY:
            raise self._error(f"its response is larger than {MAX_BODY} bytes")

    def _error(self, reason: str) -> HttpError:
        return HttpError(f"{self.address.where}: {reason}")
