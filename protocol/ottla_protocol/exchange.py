"""The client side of a connection without its socket: encodes requests, and decodes responses.

Responses come in the order of the requests, and the correlation ids must match. After a mismatch nothing on the
connection can be trusted.

Bytes are received into a scratch buffer, and complete small responses are copied from it. A larger response gets a
buffer of its own size and the rest is received directly into that, so that views of it stay valid.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Any, Final, Generic, NamedTuple, TypeVar

from .api_keys import ApiKey, api_title
from .errors import KafkaError, LocalProtocolError, ProtocolError, error_code
from .features import Features
from .header import RequestHeader, encode_request_header, parse_response_header, response_header_is_flexible
from .messages.api_versions import ApiVersionsResponse
from .registry import response_class
from .schema import Message

T = TypeVar("T")

SCRATCH_BYTES: Final = 64 * 1024
MOVED: Final = 4096
"""A partial response up to this size moves to the front of the scratch buffer; a larger one gets its own buffer."""

_SIZE: Final = Struct(">i")
_PRODUCE: Final = int(ApiKey.PRODUCE)
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_FIRST_HANDSHAKE: Final = 3
_REFUSED: Final = b"\x00\x23"
"""UNSUPPORTED_VERSION at the start of an ApiVersions response, whose rest is then in version 0 (KIP-511)."""


class UnsupportedVersionError(LocalProtocolError):
    """The peer lacks the API, the requested version, or any version that this side has."""


class RawAnswer(NamedTuple):
    """A response that is not decoded: the bytes after its header, and their version."""

    body: memoryview
    version: int


class Encoded:
    """A request in the bytes of one version, made before it is sent: see :meth:`.Message.encode_in_slices`.

    Attributes:
        name: of its class.
    """

    __slots__ = ("API_KEY", "_parts", "_version", "name")

    def __init__(self, message: Message, version: int, parts: list[Any]) -> None:
        self.API_KEY = message.API_KEY
        self.name = type(message).__name__
        self._parts = parts
        self._version = version

    def encode_parts(self, version: int) -> list[Any]:
        """Return the bytes in parts. Raises LocalProtocolError for another version."""
        if version != self._version:
            raise LocalProtocolError(f"{self.name} was encoded in version {self._version}, not {version}")
        return list(self._parts)


class Answer(NamedTuple, Generic[T]):
    """A response for a request's ``token``: the decoded message, a RawAnswer, or an error."""

    token: T
    value: Any
    error: ProtocolError | None = None


class _Api:
    """One version of an API on this connection: writes its header, and reads its responses."""

    __slots__ = ("flexible_header", "key", "name", "prefix", "response", "tail", "version")

    def __init__(self, key: int, version: int, client_id: str) -> None:
        header = encode_request_header(RequestHeader(key, version, 0, client_id))
        self.key = key
        self.version = version
        self.name = api_title(key)
        self.prefix = header[:4]
        self.tail = header[8:]
        self.flexible_header = response_header_is_flexible(key, version)
        self.response = response_class(key)


class _Pending(NamedTuple, Generic[T]):
    correlation: int
    api: _Api
    raw: bool
    token: T


class Exchange(Generic[T]):
    """The requests and responses of one connection. ``T`` is the caller's token that identifies a request.

    Start with ApiVersions in :data:`handshake_version`, and pass its response to :meth:`learn`. The connection's owner
    owns it.
    """

    def __init__(self, client_id: str, max_answer_bytes: int) -> None:
        self.handshake_version = _FIRST_HANDSHAKE
        self.theirs: dict[int, tuple[int, int]] = {}
        self.features = Features()
        self.pending: deque[_Pending[T]] = deque()
        self._client_id = client_id
        self._max_answer_bytes = max_answer_bytes
        self._newest: dict[int, _Api] = {}
        self._chosen: dict[tuple[int, int], _Api] = {}
        self._correlation = 0
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._end = 0
        self._large: memoryview | None = None
        self._filled = 0

    def learn(self, answer: RawAnswer) -> bool:
        """Learn the peer's versions from its ApiVersions response.

        Returns False if the request must be repeated in the new ``handshake_version``. Raises ProtocolError if the
        response can't be decoded, and KafkaError if it is an error.
        """
        refused = bytes(answer.body[:2]) == _REFUSED
        response = ApiVersionsResponse.decode(answer.body, 0 if refused else answer.version)
        theirs = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        if refused and answer.version > 0:
            self.handshake_version = min(theirs.get(_API_VERSIONS, (0, 0))[1], answer.version - 1)
            return False
        if response.error_code:
            raise KafkaError(error_code(response.error_code), "ApiVersions is refused")
        self.theirs = theirs
        self.features = Features(
            response.finalized_features_epoch,
            {each.name: each.max_version_level for each in response.finalized_features},
        )
        return True

    def common(self, api_key: int) -> tuple[int, int] | None:
        """Return the lowest and highest version that both sides have."""
        theirs = self.theirs.get(api_key)
        if theirs is None:
            return None
        first, last = response_class(api_key).VERSIONS
        low, high = max(first, theirs[0]), min(last, theirs[1])
        return (low, high) if low <= high else None

    def version_of(self, api_key: int) -> int:
        """Return the highest version that both sides have. Raises UnsupportedVersionError if there is none."""
        return (self._newest.get(api_key) or self._newest_of(api_key)).version

    def _newest_of(self, api_key: int) -> _Api:
        both = self.common(api_key)
        if both is None:
            theirs = self.theirs.get(api_key)
            has = "does not have it" if theirs is None else f"has versions {theirs[0]} to {theirs[1]} of it"
            first, last = response_class(api_key).VERSIONS
            raise UnsupportedVersionError(
                f"{api_title(api_key)}: the broker {has}, this side speaks {first} to {last}"
            )
        api = self._newest[api_key] = self._version(api_key, both[1])
        return api

    def _version(self, api_key: int, version: int) -> _Api:
        api = self._chosen.get((api_key, version))
        if api is None:
            both = self.common(api_key)
            if self.theirs and (both is None or not both[0] <= version <= both[1]):
                has = "none" if both is None else f"only {both[0]} to {both[1]}"
                raise UnsupportedVersionError(
                    f"{api_title(api_key)} version {version}: the broker supports {has} of our versions"
                )
            api = self._chosen[api_key, version] = _Api(api_key, version, self._client_id)
        return api

    def request(
        self, message: Message | Encoded, token: T, *, version: int | None = None, raw: bool = False
    ) -> tuple[list[Any], int, bool]:
        """Return a request's bytes in parts, their total size, and whether a response follows (not with acks=0).

        Raises UnsupportedVersionError, and LocalProtocolError for a value that the version can't carry.
        """
        key: Any = message.API_KEY
        if version is None:
            api = self._newest.get(key) or self._newest_of(key)
        else:
            api = self._chosen.get((key, version)) or self._version(key, version)
        parts: list[Any] = message.encode_parts(api.version)
        correlation = self._correlation
        self._correlation = (correlation + 1) & 0x7FFF_FFFF
        tail = api.tail
        size = 8 + len(tail) + sum(map(len, parts))
        parts.insert(0, _SIZE.pack(size) + api.prefix + _SIZE.pack(correlation) + tail)
        answered = key != _PRODUCE or message.acks != 0  # type: ignore[union-attr]
        if answered:
            self.pending.append(_Pending(correlation, api, raw, token))
        return parts, size + 4, answered

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes; it is never empty."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._scratch[self._end :]

    def received(self, count: int) -> list[Answer[T]]:
        """Return the responses that ``count`` more bytes in the buffer complete.

        After a response with an ``error``, drop the connection. Raises ProtocolError for bytes that are not a response;
        the responses before them are lost.
        """
        large = self._large
        if large is not None:
            self._filled += count
            if self._filled < len(large):
                return []
            self._large = None
            return [self._answer(large)]
        self._end += count
        scratch, end = self._scratch, self._end
        position = 0
        answers: list[Answer[T]] = []
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(scratch, position)
            if not 4 <= size <= self._max_answer_bytes:
                raise self._no_answer(size, bytes(scratch[position : min(end, position + 64)]))
            start, stop = position + 4, position + 4 + size
            if stop > end:
                if size + 4 > len(scratch) or end - start > MOVED:
                    self._large = memoryview(bytearray(size))
                    self._filled = end - start
                    self._large[: self._filled] = scratch[start:end]
                    position = end
                break
            answers.append(self._answer(memoryview(bytes(scratch[start:stop]))))
            position = stop
            if answers[-1].error is not None:
                break
        if position:
            left = end - position
            if left:
                scratch[:left] = bytes(scratch[position:end])
            self._end = left
        return answers

    def _answer(self, frame: memoryview) -> Answer[T]:
        (correlation,) = _SIZE.unpack_from(frame)
        if not self.pending or correlation != self.pending[0].correlation:
            expected = (
                f"{self.pending[0].correlation} ({self.pending[0].api.name})" if self.pending else "none"
            )
            raise ProtocolError(
                f"a response with the correlation id {correlation} where {expected} was expected"
            )
        _, api, raw, token = self.pending.popleft()
        try:
            position = 4
            if api.flexible_header:
                # No response has tagged fields in its header so far.
                tagged = len(frame) < 5 or frame[4]
                position = parse_response_header(frame, api.key, api.version)[1] if tagged else 5
            if raw:
                return Answer(token, RawAnswer(frame[position:], api.version))
            return Answer(token, api.response.decode(frame, api.version, position))
        except ProtocolError as error:
            wrong = ProtocolError(
                f"a response to {api.name} version {api.version} that can't be read ({error})"
            )
            return Answer(token, None, wrong)

    def _no_answer(self, size: int, start: bytes) -> ProtocolError:
        """Describe the bytes received instead of a response, as far as possible."""
        text = start.split(b"\r\n")[0].decode("ascii", "replace")
        if start[:2] in (b"\x15\x03", b"\x16\x03"):
            return ProtocolError('TLS: it is a TLS listener, set security_protocol="SSL"')
        if start[:5] == b"HTTP/":
            return ProtocolError(f"{text!r}: it is a web server; give the address of a Kafka broker")
        if text.isprintable() and start[:4].isascii():
            return ProtocolError(f"{text!r}; give the address of a Kafka broker")
        if size > self._max_answer_bytes:
            return ProtocolError(
                f"a response of {size} bytes; the largest accepted is {self._max_answer_bytes}"
            )
        return ProtocolError(f"a response of {size} bytes")
