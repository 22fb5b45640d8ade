"""The seam between sockets and what requests mean."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from ottla_broker.network.pending_response import PendingResponse


class Principal(NamedTuple):
    """Who a client is, in Kafka's words: ``User:ANONYMOUS`` until it has said so."""

    type: str
    name: str


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class ClientConnection(Protocol):
    """The connection that a request came by.

    Attributes:
        client_id: what the client called itself last; for logs.
        id: unlike that of any other connection of this broker.
        principal: who the client is, as far as the connection has proved; a client id proves nothing.
        client_host: the client's address.
        listener: the name of the listener that accepted it.
    """

    client_id: str | None

    @property
    def id(self) -> str: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def client_host(self) -> str: ...
    @property
    def listener(self) -> str: ...


Parts = list[object]
"""One whole response, its length prefix included: bytes-like objects and file slices, to be sent in order."""


Reply = Parts | PendingResponse | None


class Service(Protocol):
    """What connections hand their frames to."""

    def handle(self, connection: ClientConnection, frame: memoryview) -> Reply:
        """Answer one request.

        ``frame`` is the request without its length prefix; it is valid only until this returns. The reply is a
        finished response, a response that will come, or ``None`` for a request that is not answered.

        Raises:
            CloseConnection: the connection is to be closed.
        """
        ...
