"""The seam between sockets and what requests mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla_broker.network.connection import Connection

Parts = list[object]
"""One whole response, its length prefix included: bytes-like objects and file slices, to be sent in order."""


class Slot:
    """The place in a connection's row of answers that a parked request holds until it is answered.

    Owned by the loop thread. ``abandon``, where given, is called if the connection closes before the answer.
    """

    __slots__ = ("abandon", "connection", "parts", "ready", "size")

    def __init__(self, abandon: Callable[[], None] | None = None) -> None:
        self.connection: Connection | None = None
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

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        """Answer one request.

        ``frame`` is the request without its length prefix; it is valid only until this returns. The reply is a
        finished response, a :class:`Slot` that will be filled, or ``None`` for a request that is not answered.

        Raises:
            CloseConnection: the connection is to be closed.
        """
        ...
