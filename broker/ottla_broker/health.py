"""The health check of the container image: ``python -m ottla_broker.health [HOST:PORT]``.

For a broker whose listeners want a login, give ``http://127.0.0.1:PORT/health/ready``, with the port of
``metrics.listener``.

A broker is healthy if its Metadata response lists a broker; in a cluster that means that it has joined. Exits with 0,
or with 1 and one line with the reason.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Final

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ProtocolError
from ottla_protocol.header import RequestHeader, encode_request_header, parse_response_header
from ottla_protocol.messages.metadata import MetadataRequest, MetadataResponse

_TIMEOUT_SECONDS: Final = 5.0
_VERSION: Final = 1  # the oldest version that can request no topics
_MAX_RESPONSE: Final = 1 << 20


def find_problem(host: str, port: int, timeout: float = _TIMEOUT_SECONDS) -> str | None:
    """Return what is wrong with the broker at this address, or None."""
    header = RequestHeader(int(ApiKey.METADATA), _VERSION, 1, "health")
    request = encode_request_header(header) + MetadataRequest(topics=[]).encode(_VERSION)
    try:
        with socket.create_connection((host, port), timeout) as sock:
            sock.sendall(struct.pack(">i", len(request)) + request)
            with sock.makefile("rb") as responses:
                (size,) = struct.unpack(">i", responses.read(4))
                if not 4 < size <= _MAX_RESPONSE:
                    return f"a response of {size} bytes"
                response = responses.read(size)
    except (OSError, struct.error) as error:
        return f"no response: {error}"
    try:
        _, body = parse_response_header(response, int(ApiKey.METADATA), _VERSION)
        brokers = MetadataResponse.decode(response, _VERSION, body).brokers
    except ProtocolError as error:
        return f"not a broker's response: {error}"
    return None if brokers else "it has not joined its cluster"


def find_http_problem(url: str) -> str | None:
    """Return what is wrong by ``/health/ready`` of ``metrics.listener``, or None."""
    # Imported here because the other check doesn't need it, and starts every few seconds.
    from ottla_protocol.http_client import HttpError, HttpExchange, parse_url

    try:
        http = HttpExchange(parse_url(url))
        with socket.create_connection((http.address.host, http.address.port), _TIMEOUT_SECONDS) as sock:
            sock.sendall(http.request)
            while not http.complete:
                http.feed(sock.recv(8192))
    except (OSError, ValueError, HttpError) as error:
        return f"no response: {error}"
    return None if http.status == 200 else http.body.decode("utf-8", "replace")


def main(arguments: list[str]) -> int:
    where = arguments[0] if arguments else "127.0.0.1:9092"
    if where.startswith("http://"):
        problem = find_http_problem(where)
    else:
        host, _, port = where.rpartition(":")
        problem = find_problem(host, int(port))
    if problem is not None:
        print(f"{where} is not healthy: {problem}", file=sys.stderr)
    return 0 if problem is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
