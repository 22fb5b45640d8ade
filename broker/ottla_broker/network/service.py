"""The seam between sockets and what requests mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol


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


class ResponseQueue(Protocol):
    """The connection whose row of answers a parked request stands in."""

    def on_slot_ready(self) -> None: ...

    def close(self, reason: str | None) -> None: ...


class Slot:
    """The place in a connection's row of answers that a parked request holds until it is answered.

    Owned by the loop thread. ``abandon``, where given, is called if the connection closes before the answer.
    """

    __slots__ = ("abandon", "connection", "parts", "ready", "size")

    def __init__(self, abandon: Callable[[], None] | None = None) -> None:
        self.connection: ResponseQueue | None = None
        self.parts: Parts | None = None
        self.ready = False
        # Bytes of an answer that came at once and stands behind others.
        self.size = 0
        self.abandon = abandon

    def fill(self, parts: Parts | None) -> None:
        """Answer the parked request; ``None`` means that it gets no response."""
        self.parts = parts
        self.ready = True
        self.abandon = None
        if self.connection is not None:
            self.connection.on_slot_ready()

    def fail(self, reason: str) -> None:
        """There is no answer to be had: the connection is closed."""
        if self.connection is not None:
            self.connection.close(reason)


Reply = Parts | Slot | None


class CloseConnection(Exception):
    """What the client sent cannot be answered; its connection is closed and the broker goes on."""


class Service(Protocol):
    """What connections hand their frames to."""

    def handle(self, connection: ClientConnection, frame: memoryview) -> Reply:
        """Answer one request.

        ``frame`` is the request without its length prefix; it is valid only until this returns. The reply is a
        finished response, a :class:`Slot` that will be filled, or ``None`` for a request that is not answered.

        Raises:
            CloseConnection: the connection is to be closed.
        """
        ...
