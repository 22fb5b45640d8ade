"""A minimal broker in the test's own loop, which answers as the test says, faults included."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from tests.support.listening import Listener

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import RequestHeader, encode_response_header, parse_request_header
from ottla_protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla_protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla_protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla_protocol.registry import request_class
from ottla_protocol.schema import Message

VERSIONS = {
    ApiKey.PRODUCE: (0, 11),
    ApiKey.FETCH: (4, 17),
    ApiKey.METADATA: (0, 12),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.LIST_GROUPS: (0, 5),
}

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Answer = Callable[[RequestHeader, Any], "Message | bytes | Awaitable[Message] | None"]


@dataclass
class Partition:
    leader: int = 1
    epoch: int = 0
    error: int = 0
    replicas: tuple[int, ...] = (1,)


@dataclass
class Topic:
    id: bytes = b"i" * 16
    partitions: dict[int, Partition] = field(default_factory=lambda: {0: Partition()})
    error: int = 0


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class FakeBroker:
    """``answers`` overrides the responses of an API, None sends none. ``script`` takes over a whole connection."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = 0
        self.versions: dict[int, tuple[int, int]] = dict(VERSIONS)
        self.answers: dict[int, Answer] = {}
        self.script: Script | None = None
        self.nodes: dict[int, tuple[str, int]] = {}
        self.topics: dict[str, Topic] = {}
        self.controller = 1
        self.coordinator = (1, 0)
        self.asked: Counter[ApiKey] = Counter()
        self.headers: list[RequestHeader] = []
        self.requests: list[Any] = []
        self.connections = 0
        self._listener: Listener | None = None

    @property
    def bootstrap(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def open_now(self) -> int:
        return 0 if self._listener is None else self._listener.open_now

    @property
    def writers(self) -> Collection[asyncio.StreamWriter]:
        """The connections' sending sides."""
        return () if self._listener is None else self._listener.writers

    async def start(self) -> FakeBroker:
        self._listener = Listener(self._serve, self.host, self.port)
        self.port = self._listener.port
        self.nodes = self.nodes or {1: (self.host, self.port)}
        return self

    async def stop(self) -> None:
        """Stop listening and cut all connections."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()

    def cut(self) -> None:
        """Cut all connections without sending anything."""
        assert self._listener is not None
        self._listener.cut()

    async def __aenter__(self) -> FakeBroker:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await (self.script or self._speak)(reader, writer)

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            data = await reader.readexactly(size)
            header, position = parse_request_header(data)
            key = ApiKey(header.api_key)
            self.asked[key] += 1
            self.headers.append(header)
            first, last = self.versions.get(key, (0, -1))
            if not first <= header.api_version <= last:
                assert key is ApiKey.API_VERSIONS, f"{key.name} v{header.api_version} was not offered"
                answer: Message | bytes | Awaitable[Message] | None = self._versions(
                    ErrorCode.UNSUPPORTED_VERSION
                ).encode(0)
            else:
                request = request_class(key, header.api_version).decode(data, header.api_version, position)
                self.requests.append(request)
                answer = self.answers.get(key, self._usual)(header, request)
                if isawaitable(answer):
                    answer = await answer
            if answer is None:
                continue
            if isinstance(answer, Message):
                answer = answer.encode(header.api_version)
            writer.write(
                frame(encode_response_header(key, header.api_version, header.correlation_id) + answer)
            )
            await writer.drain()

    def _versions(self, error: int = 0) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            error_code=error,
            api_keys=[
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in self.versions.items()
            ],
        )

    def _usual(self, header: RequestHeader, request: Any) -> Message:
        if header.api_key == ApiKey.API_VERSIONS:
            return self._versions()
        if header.api_key == ApiKey.METADATA:
            return self.metadata(header, request)
        if header.api_key == ApiKey.FIND_COORDINATOR:
            return self._coordinator(header, request)
        raise AssertionError(f"no answer to {header}")

    def metadata(self, header: RequestHeader, request: Any) -> MetadataResponse:
        every = request.topics is None or (header.api_version == 0 and not request.topics)
        names = list(self.topics) if every else [each.name for each in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=id, host=host, port=port)
                for id, (host, port) in self.nodes.items()
            ],
            cluster_id="fake",
            controller_id=self.controller,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return MetadataResponseTopic(
            name=name,
            topic_id=topic.id,
            error_code=topic.error,
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=each.leader,
                    leader_epoch=each.epoch,
                    error_code=each.error,
                    replica_nodes=list(each.replicas),
                    isr_nodes=[1],
                )
                for index, each in topic.partitions.items()
            ],
        )

    def _coordinator(self, header: RequestHeader, request: Any) -> FindCoordinatorResponse:
        node, error = self.coordinator
        host, port = self.nodes.get(node, ("", -1))
        if header.api_version < 4:
            return FindCoordinatorResponse(node_id=node, host=host, port=port, error_code=error)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=node, host=host, port=port, error_code=error)
                for key in request.coordinator_keys
            ]
        )
