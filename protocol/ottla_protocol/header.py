"""Request and response headers, and which of their versions an API's version takes.

::

    request header v0: api_key:int16 api_version:int16 correlation_id:int32
    request header v1: v0, client_id:nullable string (int16 length)
    request header v2: v1, tagged fields
    response header v0: correlation_id:int32
    response header v1: v0, tagged fields

A request takes v2 where its own version is flexible (KIP-482), v0 for ControlledShutdown v0, else v1; the
client id keeps its int16 length even in v2, so that a broker can read it whatever the version says. A
response takes v1 where it is flexible, but for ApiVersions: its answer is read before the client knows what
the broker speaks.

Both are written by hand, without the schema's compiler, since they are read and written on every request.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from .errors import LocalProtocolError, ProtocolError
from .primitives import MAX_STRING, Buffer, read_uvarint

_NEVER = 0x7FFF
_API_VERSIONS = 18
_CONTROLLED_SHUTDOWN = 7

_FIRST_FLEXIBLE = (
    9, 12, 6, 9, 4, 2, 6, 3, 8, 6, 3, 6, 4, 4, 4, 5, 3, _NEVER, 3, 5,  # 0: Produce …
    4, 2, 2, 4, 3, 3, 3, 1, 3, 2, 2, 2, 4, 2, 2, 2, 2, 2, 2, 2,  # 20: DeleteTopics …
    2, 2, 2, 2, 1, 0, 0, _NEVER, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0,  # 40: ExpireDelegationToken …
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  # 60: DescribeCluster … 75: DescribeTopicPartitions
)  # fmt: skip
"""By API key: the first version whose request, and so its header, is flexible."""

_prefix = Struct(">hhih")
_identity = Struct(">hhi")
_correlation = Struct(">i")
_unpack_prefix = _prefix.unpack_from


class RequestHeader:
    """What stands before every request. ``client_id`` is None where the client sent null."""

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
    """Whether the API's ``version`` takes request header v2; False for a key that Kafka 3.9 does not have."""
    return 0 <= api_key < len(_FIRST_FLEXIBLE) and version >= _FIRST_FLEXIBLE[api_key]


def response_header_is_flexible(api_key: int, version: int) -> bool:
    """Whether the API's ``version`` is answered under response header v1."""
    return api_key != _API_VERSIONS and request_is_flexible(api_key, version)


def parse_request_header(data: Buffer) -> tuple[RequestHeader, int]:
    """The header that starts a request frame (after its size), and the position of the body.

    Raises ProtocolError where the frame is too short for the header that its API and version take, or where
    the client id is not UTF-8. The key and version may be ones that nobody knows.
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
    if 0 <= api_key <= 75 and version >= _FIRST_FLEXIBLE[api_key]:
        position = _skip_tagged_fields(data, position, "request header")
    return RequestHeader(api_key, version, correlation_id, client_id), position


def _short_header(data: Buffer) -> tuple[RequestHeader, int]:
    """The header of a frame of fewer than ten bytes: only ControlledShutdown v0 may be so short."""
    if len(data) >= 8:
        api_key, version, correlation_id = _identity.unpack_from(data)
        if api_key == _CONTROLLED_SHUTDOWN and version == 0:
            return RequestHeader(api_key, version, correlation_id, None), 8
    raise ProtocolError(f"request header: {len(data)} bytes are too few")


def _skip_tagged_fields(data: Buffer, position: int, where: str) -> int:
    """The position after tagged fields; no header has one that is known."""
    try:
        if data[position] == 0:
            return position + 1
        count, position = read_uvarint(data, position)
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
    """The header's bytes, in the version that its API and version take.

    Raises LocalProtocolError for numbers out of range and for a client id that is too long or not text.
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
    """What stands before the answer to a request of ``api_key`` and ``version``."""
    encoded = _correlation.pack(correlation_id)
    return encoded + b"\x00" if response_header_is_flexible(api_key, version) else encoded


def parse_response_header(data: Buffer, api_key: int, version: int) -> tuple[int, int]:
    """The correlation id that starts a response frame (after its size), and the position of the body.

    ``api_key`` and ``version`` are those of the request that is answered. Raises ProtocolError for a frame
    that is cut short.
    """
    try:
        (correlation_id,) = _correlation.unpack_from(data)
    except StructError:
        raise ProtocolError(f"response header: {len(data)} bytes are too few") from None
    if response_header_is_flexible(api_key, version):
        return correlation_id, _skip_tagged_fields(data, 4, "response header")
    return correlation_id, 4
