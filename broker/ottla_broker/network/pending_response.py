"""The response to a request that can't be answered at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class CloseConnection(Exception):
    """A request can't be answered. Its connection is closed, with the message as the reason."""


class ResponseQueue(Protocol):
    """A connection, whose responses go out in the order of their requests."""

    def on_response_ready(self) -> None: ...

    def close(self, reason: str | None) -> None: ...


class PendingResponse:
    """A request's place among the responses of its connection.

    Whoever makes it calls :meth:`complete` once. The response goes out without another turn of the event loop. Owned by
    the loop thread.

    Attributes:
        abandon: called if the client leaves before the response.
        parts: the bytes to send; None for a request that gets no response.
        size: bytes of a finished response that waits behind others; ``held``: those of them in memory.
    """

    __slots__ = ("_error", "abandon", "held", "parts", "queue", "ready", "size")

    def __init__(self, abandon: Callable[[], None] | None = None) -> None:
        self.abandon = abandon
        self.queue: ResponseQueue | None = None
        self.ready = False
        self.parts: list[object] | None = None
        self._error: BaseException | None = None
        self.size = self.held = 0

    def complete(self, response: list[object] | BaseException | None) -> None:
        """Give the response, or the exception that replaces it. A second call is a defect."""
        if self.ready or self._error is not None:
            raise RuntimeError("this request has been answered before")
        self.abandon = None
        if isinstance(response, BaseException):
            self._error = response
        else:
            self.parts = response
            self.ready = True
        if self.queue is not None:
            self._deliver(self.queue)

    def put(self, queue: ResponseQueue) -> None:
        """Join the end of a connection's responses."""
        self.queue = queue
        if self.ready or self._error is not None:
            self._deliver(queue)

    def _deliver(self, queue: ResponseQueue) -> None:
        if self._error is not None:
            queue.close(str(self._error))
        else:
            queue.on_response_ready()
