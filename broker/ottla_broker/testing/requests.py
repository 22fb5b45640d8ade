"""The requests of :class:`EmbeddedBroker`: create a topic, delete a topic."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import RequestHeader, encode_request_header, parse_response_header
from ottla_protocol.messages import create_topics as wire
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla_protocol.schema import Message

TIMEOUT_SECONDS: Final = 30.0
_CREATE_VERSION: Final = 5
_DELETE_VERSION: Final = 5


class RefusedError(Exception):
    """The broker returned an error; ``missing`` means that the topic doesn't exist."""

    def __init__(self, message: str, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


class Requests:
    """A connection to a broker of this version. Every method raises OSError if it breaks or times out."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), TIMEOUT_SECONDS)

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Raises RefusedError."""
        topic = wire.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            configs=[wire.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = wire.CreateTopicsRequest(topics=[topic], timeout_ms=int(TIMEOUT_SECONDS * 1000))
        data, position = self._call(ApiKey.CREATE_TOPICS, _CREATE_VERSION, request)
        (result,) = wire.CreateTopicsResponse.decode(data, _CREATE_VERSION, position).topics
        _check(f"topic {name} was not created", result.error_code, result.error_message)

    def delete_topic(self, name: str) -> None:
        """Raises RefusedError."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(TIMEOUT_SECONDS * 1000))
        data, position = self._call(ApiKey.DELETE_TOPICS, _DELETE_VERSION, request)
        (result,) = DeleteTopicsResponse.decode(data, _DELETE_VERSION, position).responses
        _check(f"topic {name} was not deleted", result.error_code, result.error_message)

    def _call(self, api_key: ApiKey, version: int, request: Message) -> tuple[bytes, int]:
        """Return the response, and the position of its body."""
        header = encode_request_header(RequestHeader(api_key, version, 1, "ottla-testing"))
        body = header + request.encode(version)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        with self._socket.makefile("rb") as stream:
            size = stream.read(4)
            response = stream.read(struct.unpack(">i", size)[0]) if len(size) == 4 else b""
        if not response:
            raise ConnectionError("the broker closed the connection")
        return response, parse_response_header(response, api_key, version)[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


def _check(what: str, code: int, message: str | None) -> None:
    if code:
        error = ErrorCode(code)
        text = f"{what}: {error.name}: {message}" if message else f"{what}: {error.name}"
        raise RefusedError(text, missing=error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
