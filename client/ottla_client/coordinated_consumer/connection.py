"""One connection to a coordinator's listener: questions and their answers, then what the coordinator pushes."""

from __future__ import annotations

import asyncio
from collections import deque

from ottla_protocol.errors import ErrorCode, ProtocolError
from ottla_protocol.push import (
    MAX_PUSH,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    FrameReader,
    FromCoordinator,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    decode_push,
)

from ..deadline import Deadline
from ..errors import ConnectError, ConnectionLostError, GroupError, NotABrokerError, RequestTimeoutError
from ..transport import connect, resolve


class CoordinatorConnection(asyncio.Protocol):
    """Belongs to the event loop's thread. Errors name the address."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self._host = host
        self._port = port
        self._frames: deque[bytes] = deque()
        self._reader = FrameReader(MAX_PUSH)
        self._arrived = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._lost: Exception | None = None

    async def open(self, deadline: Deadline) -> None:
        """Raises ConnectError."""
        try:
            async with deadline.timeout():
                error: ConnectError | None = None
                for address in await resolve(self._host, self._port):
                    try:
                        self._transport = await connect(self, address, self._host, self._port, None)
                        return
                    except ConnectError as failed:
                        error = failed
                raise error or ConnectError(f"{self.address} has no address")
        except TimeoutError:
            raise ConnectError(f"{self.address} doesn't accept the connection in time") from None

    async def cluster_metadata(self, deadline: Deadline) -> ClusterMetadataResponse:
        """Ask which broker is the coordinator. Raises ConnectionLostError, NotABrokerError, RequestTimeoutError."""
        self.send(ClusterMetadataRequest().encode())
        frame = await self._next(deadline, "ClusterMetadataRequest")
        try:
            return ClusterMetadataResponse.decode(frame)
        except ProtocolError as error:
            raise self._no_coordinator(error) from error

    async def register(self, request: RegisterConsumerRequest, deadline: Deadline) -> None:
        """Become a member of a group. Raises GroupError with the coordinator's reason, and ``cluster_metadata``'s."""
        self.send(request.encode())
        frame = await self._next(deadline, "RegisterConsumerRequest")
        try:
            response = RegisterConsumerResponse.decode(frame)
            code = ErrorCode(response.error_code)
        except (ProtocolError, ValueError) as error:
            raise self._no_coordinator(error) from error
        if code:
            raise GroupError(
                code, f"{self.address} refused the consumer: {response.error_message} ({code.name})"
            )

    async def pushed(self, seconds: float) -> FromCoordinator:
        """The coordinator's next request. Raises ConnectionLostError, NotABrokerError, RequestTimeoutError."""
        frame = await self._next(Deadline(seconds), "")
        try:
            return decode_push(frame)
        except ProtocolError as error:
            raise self._no_coordinator(error) from error

    def send(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    async def _next(self, deadline: Deadline, asked: str) -> bytes:
        while not self._frames:
            if self._lost is not None:
                raise self._lost
            self._arrived.clear()
            try:
                async with deadline.timeout():
                    await self._arrived.wait()
            except TimeoutError:
                what = f"has not answered {asked}" if asked else "has been silent for too long"
                raise RequestTimeoutError(f"the coordinator at {self.address} {what}") from None
        return self._frames.popleft()

    def _no_coordinator(self, error: Exception) -> NotABrokerError:
        return NotABrokerError(f"{self.address} is no listener of a coordinator: {error}")

    def data_received(self, data: bytes) -> None:
        try:
            self._frames.extend(self._reader.feed(data))
        except ProtocolError as error:
            self._end(self._no_coordinator(error))
        self._arrived.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(ConnectionLostError(f"the coordinator at {self.address} has closed the connection"))

    def _end(self, error: Exception) -> None:
        self._lost = self._lost or error
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._arrived.set()

    def close(self) -> None:
        """Close the connection, after what was sent."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        self._end(ConnectionLostError("the consumer has closed the connection"))
