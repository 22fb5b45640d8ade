"""Requests to the broker that coordinates a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..deadline import Deadline
from ..errors import ConnectError, ConnectionLostError, RequestTimeoutError

if TYPE_CHECKING:
    from ottla_protocol.schema import Message

    from ..cluster import Cluster
    from ..connection import Connection


class Coordinator:
    """Sends requests to a group's coordinator on a connection of its own, so that they don't wait behind fetches."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.cluster = cluster
        self.group_id = group_id

    async def connection(self, deadline: Deadline, *, aside: bool = False) -> Connection:
        """The connection to the coordinator.

        Brokers answer a connection's requests in order, and JoinGroup only when all members have joined. With
        ``aside``, a request that must not wait uses the shared connection while another one is in flight. Raises a
        retriable error if the coordinator isn't found or reached; the next call looks it up again.
        """
        node = await self.cluster.coordinator(self.group_id, deadline)
        try:
            connection = await self.cluster.dedicated(node, deadline)
            if aside and connection.in_flight:
                connection = await self.cluster.connection(node, deadline)
        except (ConnectError, ConnectionLostError, RequestTimeoutError):
            self.moved()
            raise
        return connection

    async def ask(
        self, request: Message, deadline: Deadline, *, timeout: float | None = None, aside: bool = False
    ) -> Any:
        """Send a request once and return the response."""
        return await self.submit(await self.connection(deadline, aside=aside), request, deadline, timeout)

    async def submit(
        self, connection: Connection, request: Message, deadline: Deadline, timeout: float | None = None
    ) -> Any:
        """Send on ``connection`` and wait for the response.

        After ``timeout`` seconds (by default the cluster's request timeout) the connection is closed; at the deadline
        only this wait ends. Raises RequestTimeoutError for both, ConnectionLostError, UnsupportedApiError.
        """
        try:
            answer = connection.submit(request, timeout=timeout or self.cluster.request_timeout)
            async with deadline.timeout() as limit:
                return await answer
        except TimeoutError as error:
            if isinstance(error, RequestTimeoutError):
                self.moved()
                raise
            if not limit.expired():
                raise
            raise RequestTimeoutError(
                f"group {self.group_id!r}: {connection.host}:{connection.port} did not answer"
                f" {type(request).__name__} in time"
            ) from None
        except ConnectionLostError:
            self.moved()
            raise

    def moved(self) -> None:
        """Forget the coordinator: another broker may be it now."""
        self.cluster.forget_coordinator(self.group_id)
