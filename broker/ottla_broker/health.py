"""Whether a broker serves: ``python -m ottla_broker.health [HOST:PORT]``, the health check of the container image.

Healthy is one that answers Metadata and knows of a broker; one in a cluster does when it has joined. Exits with 0,
or with 1 and a line that says what is wrong.
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
_VERSION: Final = 1  # the oldest that can ask for no topics
_LARGEST_ANSWER: Final = 1 << 20


def trouble(host: str, port: int, timeout: float = _TIMEOUT_SECONDS) -> str | None:
    """What is wrong with the broker at this address, ``None`` for nothing."""
    header = RequestHeader(int(ApiKey.METADATA), _VERSION, 1, "health")
    request = encode_request_header(header) + MetadataRequest(topics=[]).encode(_VERSION)
    try:
        with socket.create_connection((host, port), timeout) as sock:
            sock.sendall(struct.pack(">i", len(request)) + request)
            with sock.makefile("rb") as answers:
                (size,) = struct.unpack(">i", answers.read(4))
                if not 4 < size <= _LARGEST_ANSWER:
                    return f"an answer of {size} bytes"
                answer = answers.read(size)
    except (OSError, struct.error) as error:
        return f"no answer: {error}"
    try:
        _, body = parse_response_header(answer, int(ApiKey.METADATA), _VERSION)
        brokers = MetadataResponse.decode(answer, _VERSION, body).brokers
    except ProtocolError as error:
        return f"no broker's answer: {error}"
    return None if brokers else "it has not joined its cluster"


def main(arguments: list[str]) -> int:
    host, _, port = (arguments[0] if arguments else "127.0.0.1:9092").rpartition(":")
    wrong = trouble(host, int(port))
    if wrong is not None:
        print(f"{host}:{port} is not healthy: {wrong}", file=sys.stderr)
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
