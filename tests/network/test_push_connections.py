"""``coordinator.listener``: connections that lie about sizes, idle, or are too many."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.clock import FakeClock
from tests.support.waiting import until

from ottla_broker.network.connection_quotas import ConnectionQuotas
from ottla_broker.network.push import (
    AT_ONCE,
    BYTES_AT_ONCE,
    MAX_UNSENT_BEFORE,
    REGISTERED_SECONDS,
    REQUEST_SECONDS,
    PushConnection,
    PushListener,
)
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.push import (
    MAX_REGISTRATION,
    Broker,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherResponse,
    StopFetcherResponse,
)

METADATA = ClusterMetadataResponse(0, 1, (Broker(1, "127.0.0.1", 9094),))
REGISTRATION = RegisterConsumerRequest("g", "c", '{"t":1}', True, "smallest", 6000).encode()


class Service:
    """Registers all consumers but those of the group ``no``; pings each as soon as it has registered."""

    def __init__(self) -> None:
        self.handled: list[object] = []
        self.gone = 0
        self.questions = 0

    def cluster_metadata(self) -> ClusterMetadataResponse:
        self.questions += 1
        return METADATA

    async def register(self, channel: PushConnection, request: RegisterConsumerRequest) -> None:
        await asyncio.sleep(0)
        if request.group_id == "no":
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "group no is held by others")

    def registered(self, channel: PushConnection) -> None:
        channel.send(PingRequest("c").encode())

    def handle(
        self, channel: PushConnection, response: PingResponse | StopFetcherResponse | StartFetcherResponse
    ) -> None:
        self.handled.append(response)

    def disconnected(self, channel: PushConnection) -> None:
        self.gone += 1


class World:
    def __init__(self, most: int) -> None:
        self.clock = FakeClock()
        self.service = Service()
        self.quotas = ConnectionQuotas(1, 100, {})
        self.listener = PushListener(self.clock, self.service, most, self.quotas)
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, data: bytes = b"") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        writer.write(data)
        self.writer = writer
        return reader

    async def close(self) -> None:
        await self.listener.close()
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def listening(most: int = 10) -> AsyncIterator[World]:
    world = World(most)
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    world.port = sock.getsockname()[1]
    await world.listener.start(sock)
    try:
        yield world
    finally:
        await world.close()


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)


async def closed(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""


async def test_questions_registration_and_pushes_share_a_connection() -> None:
    async with listening() as world:
        reader = await world.connect(ClusterMetadataRequest().encode() + REGISTRATION)
        assert ClusterMetadataResponse.decode(await answer(reader)) == METADATA
        assert RegisterConsumerResponse.decode(await answer(reader)) == RegisterConsumerResponse(0)
        assert await answer(reader) == PingRequest("c").encode()[4:]
        world.writer.write(PingResponse(0, "c").encode())
        await until(lambda: world.service.handled == [PingResponse(0, "c")])
        # A registered consumer may be silent: the coordinator has deadlines of its own.
        world.clock.advance(REQUEST_SECONDS * 2)
        assert len(world.listener.connections) == 1
        world.writer.close()
        await until(lambda: not world.listener.connections)
        assert world.service.gone == 1


async def test_a_refusal_leaves_the_connection_open() -> None:
    async with listening() as world:
        refused = RegisterConsumerRequest("no", "c", '{"t":1}', True, "smallest", 6000)
        reader = await world.connect(refused.encode())
        found = RegisterConsumerResponse.decode(await answer(reader))
        assert found == RegisterConsumerResponse(int(ErrorCode.NON_EMPTY_GROUP), "group no is held by others")
        world.writer.write(REGISTRATION)
        assert RegisterConsumerResponse.decode(await answer(reader)).error_code == 0


async def test_messages_that_lie_close_the_connection() -> None:
    async with listening() as world:
        for data in (
            struct.pack(">i", MAX_REGISTRATION + 1),
            struct.pack(">i", -5),
            struct.pack(">ih", 2, 1),
            struct.pack(">ihh", 4, 6, 32767),
            REGISTRATION[:-1].replace(b"\0\0\0\x20", b"\0\0\0\x1f", 1),
            REGISTRATION + REGISTRATION,
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            reader = await world.connect(data)
            async with asyncio.timeout(60):
                with suppress(ConnectionResetError):
                    await reader.read()
        await until(lambda: not world.listener.connections)
        await world.connect(REGISTRATION)
        await until(lambda: world.listener.connections)


async def test_a_connection_that_does_not_register_is_closed() -> None:
    async with listening() as world:
        reader = await world.connect(REGISTRATION[:-1])
        await until(lambda: world.listener.connections)
        world.clock.advance(REQUEST_SECONDS + 1)
        await closed(reader)


async def test_questions_do_not_keep_a_connection_for_ever() -> None:
    async with listening() as world:
        reader = await world.connect()
        for _ in range(int(REGISTERED_SECONDS / (REQUEST_SECONDS - 1)) + 1):
            world.writer.write(ClusterMetadataRequest().encode())
            await answer(reader)
            world.clock.advance(REQUEST_SECONDS - 1)
        await closed(reader)


async def test_beyond_the_limit_the_oldest_that_has_not_registered_makes_room() -> None:
    async with listening(most=2) as world:
        consumer = await world.connect(REGISTRATION)
        await answer(consumer)
        second = await world.connect(ClusterMetadataRequest().encode())
        await answer(second)
        third = await world.connect(REGISTRATION)
        await closed(second)
        assert RegisterConsumerResponse.decode(await answer(third)).error_code == 0
        # All have registered.
        await closed(await world.connect())
        world.listener.connections.copy().pop().close("to make room")
        await answer(await world.connect(ClusterMetadataRequest().encode()))


async def test_connections_of_an_address_are_limited() -> None:
    async with listening() as world:
        world.quotas.update(1, 1, {})
        first = await world.connect(ClusterMetadataRequest().encode())
        await answer(first)
        await closed(await world.connect())
        world.listener.connections.copy().pop().close("to make room")
        await closed(first)
        await answer(await world.connect(ClusterMetadataRequest().encode()))


async def test_questions_in_one_go_are_answered_in_turns() -> None:
    async with listening() as world:
        await world.connect()
        await until(lambda: bool(world.listener.connections))
        (connection,) = world.listener.connections
        connection.data_received(ClusterMetadataRequest().encode() * 5 * AT_ONCE)
        assert world.service.questions == AT_ONCE
        await until(lambda: world.service.questions == 5 * AT_ONCE)


async def test_no_question_is_read_while_answers_wait_to_be_sent() -> None:
    async with listening() as world:
        reader = await world.connect()
        await until(lambda: bool(world.listener.connections))
        (connection,) = world.listener.connections
        connection.pause_writing()
        connection.data_received(ClusterMetadataRequest().encode() * 3)
        for _ in range(10):
            await asyncio.sleep(0)
        assert world.service.questions == 0
        connection.resume_writing()
        for _ in range(3):
            assert ClusterMetadataResponse.decode(await answer(reader)) == METADATA


async def test_what_a_consumer_reports_is_read_while_pushes_wait_to_be_sent() -> None:
    async with listening() as world:
        reader = await world.connect(REGISTRATION)
        assert RegisterConsumerResponse.decode(await answer(reader)) == RegisterConsumerResponse(0)
        (connection,) = world.listener.connections
        connection.pause_writing()
        connection.data_received(PingResponse(0, "c", None).encode())
        assert len(world.service.handled) == 1


async def test_before_a_registration_little_is_answered_to_a_client_that_does_not_read() -> None:
    async with listening() as world:
        await world.connect()
        await until(lambda: bool(world.listener.connections))
        (connection,) = world.listener.connections
        connection.pause_writing()
        refused = RegisterConsumerRequest("no", "c", '{"t":1}', True, "smallest", 6000).encode()
        connection.data_received(refused + ClusterMetadataRequest().encode())
        for _ in range(10):
            await asyncio.sleep(0)
        assert world.service.questions == 0
        connection.send(bytes(MAX_UNSENT_BEFORE * 100))
        await until(lambda: not world.listener.connections)


async def test_large_messages_take_turns() -> None:
    async with listening() as world:
        reader = await world.connect(REGISTRATION)
        assert RegisterConsumerResponse.decode(await answer(reader)) == RegisterConsumerResponse(0)
        (connection,) = world.listener.connections
        large = PingResponse(0, "c", (PartitionOffset("t" * 200, 0, 0),) * 100).encode()
        assert len(large) * AT_ONCE > BYTES_AT_ONCE
        connection.data_received(large * AT_ONCE)
        assert 0 < len(world.service.handled) < AT_ONCE
        await until(lambda: len(world.service.handled) == AT_ONCE)
