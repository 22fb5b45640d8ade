"""Request and response headers, and the header version of each API version.

::

    request header v0: api_key:int16 api_version:int16 correlation_id:int32
    request header v1: v0, client_id:nullable string (int16 length)
    request header v2: v1, tagged fields
    response header v0: correlation_id:int32
    response header v1: v0, tagged fields

A flexible request version (KIP-482) has header v2, ControlledShutdown v0 has v0, and all others v1. The client id keeps
its int16 length even in v2, so that a broker can read it in any version. A flexible response has header v1, except
ApiVersions, whose response the client reads before it knows the broker's versions.

Both are coded by hand, without the schema's compiler, because every request needs them.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

from .errors import LocalProtocolError, ProtocolError
from .primitives import MAX_STRING, Buffer, read_uvarint

_NEVER = 0x7FFF
_API_VERSIONS = 18
_CONTROLLED_SHUTDOWN = 7

_FIRST_FLEXIBLE = (
    9, 12, 6, 9, 4, 2, 6, 3, 8, 6, 3, 6, 4, 4, 4, 5, 3, _NEVER, 3, 5,  # 0: Produce …
    4, 2, 2, 4, 3, 3, 3, 1, 3, 2, 2, 2, 4, 2, 2, 2, 2, 2, 2, 2,  # 20: DeleteTopics …
    2, 2, 2, 2, 1, 0, 0, _NEVER, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0,  # 40: ExpireDelegationToken …
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  # 60: DescribeCluster …
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  # 80: AddRaftVoter … 92: DeleteShareGroupOffsets
)  # fmt: skip
"""By API key: the first flexible version of the request, and so of its header."""

_prefix = Struct(">hhih")
_identity = Struct(">hhi")
_correlation = Struct(">i")
_unpack_prefix = _prefix.unpack_from


MOST_TAGS: Final = 100
"""The most tagged fields of a header. Kafka has none so far, and no limit; they are read before anything is checked."""


class RequestHeader:
    """The header of a request; ``client_id`` is None if the client sent null."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def request_is_flexible(api_key: int, version: int) -> bool:
    """Whether this version has request header v2; False for an unknown API."""
    return 0 <= api_key < len(_FIRST_FLEXIBLE) and version >= _FIRST_FLEXIBLE[api_key]


def response_header_is_flexible(api_key: int, version: int) -> bool:
    """Whether this version has response header v1."""
    return api_key != _API_VERSIONS and request_is_flexible(api_key, version)


def parse_request_header(data: Buffer) -> tuple[RequestHeader, int]:
    """Parse the header of a request frame (after its size). Returns it, and the position of the body.

    Accepts unknown API keys and versions. Raises ProtocolError if the frame is too short, or the client id is not
    UTF-8.
    """
    try:
        api_key, version, correlation_id, length = _unpack_prefix(data)
    except StructError:
        return _short_header(data)
    position = 10
    client_id = None
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return RequestHeader(api_key, version, correlation_id, None), 8
    if length >= 0:
        position = 10 + length
        if position > len(data):
            raise ProtocolError(f"request header: a client id of {length} bytes, {len(data) - 10} are left")
        try:
            client_id = str(data[10:position], "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("request header: the client id is not UTF-8") from None
    elif length != -1:
        raise ProtocolError(f"request header: the length of the client id is {length}")
    if 0 <= api_key <= 92 and version >= _FIRST_FLEXIBLE[api_key]:
        if position < len(data) and not data[position]:
            position += 1
        else:
            position = _skip_tagged_fields(data, position, "request header")
    return RequestHeader(api_key, version, correlation_id, client_id), position


def _short_header(data: Buffer) -> tuple[RequestHeader, int]:
    """Parse the header of a frame under ten bytes; only ControlledShutdown v0 may be so short."""
    if len(data) >= 8:
        api_key, version, correlation_id = _identity.unpack_from(data)
        if api_key == _CONTROLLED_SHUTDOWN and version == 0:
            return RequestHeader(api_key, version, correlation_id, None), 8
    raise ProtocolError(f"request header: {len(data)} bytes are too few")


def _skip_tagged_fields(data: Buffer, position: int, where: str) -> int:
    """Return the position after the tagged fields, of which headers have none that is known."""
    try:
        if data[position] == 0:
            return position + 1
        count, position = read_uvarint(data, position)
        if count > MOST_TAGS:
            raise ProtocolError(f"{where}: {count} tagged fields, {MOST_TAGS} are allowed")
        for _ in range(count):
            tag, position = read_uvarint(data, position)
            size, position = read_uvarint(data, position)
            position += size
            if position > len(data):
                raise ProtocolError(f"{where}: tagged field {tag} goes past the end")
    except IndexError:
        raise ProtocolError(f"{where}: cut short in its tagged fields") from None
    return position


def encode_request_header(header: RequestHeader) -> bytes:
    """Encode a request header in the version that its API and version need.

    Raises LocalProtocolError for a number out of range, and for a client id that is too long or not text.
    """
    try:
        encoded = _identity.pack(header.api_key, header.api_version, header.correlation_id)
        if header.api_key == _CONTROLLED_SHUTDOWN and header.api_version == 0:
            return encoded
        client_id = None if header.client_id is None else header.client_id.encode()
    except (StructError, UnicodeEncodeError) as error:
        raise LocalProtocolError(f"request header: {error}") from error
    if client_id is None:
        encoded += b"\xff\xff"
    elif len(client_id) > MAX_STRING:
        raise LocalProtocolError(f"request header: the client id is {len(client_id)} bytes long")
    else:
        encoded += len(client_id).to_bytes(2, "big") + client_id
    return encoded + b"\x00" if request_is_flexible(header.api_key, header.api_version) else encoded


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Encode the header of a response to a request of ``api_key`` and ``version``."""
    encoded = _correlation.pack(correlation_id)
    return encoded + b"\x00" if response_header_is_flexible(api_key, version) else encoded


def parse_response_header(data: Buffer, api_key: int, version: int) -> tuple[int, int]:
    """Parse the header of a response frame (after its size). Returns its correlation id, and the position of the body.

    ``api_key`` and ``version`` are the request's. Raises ProtocolError for a truncated frame.
    """
    try:
        (correlation_id,) = _correlation.unpack_from(data)
    except StructError:
        raise ProtocolError(f"response header: {len(data)} bytes are too few") from None
    if response_header_is_flexible(api_key, version):
        return correlation_id, _skip_tagged_fields(data, 4, "response header")
    return correlation_id, 4
