"""The response to a request that isn't answered at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class CloseConnection(Exception):
    """A request can't be answered: its connection is closed, with the message as the reason."""


class ResponseQueue(Protocol):
    """A connection, whose responses go out in the order of their requests."""

    def on_response_ready(self) -> None: ...

    def close(self, reason: str | None) -> None: ...


class PendingResponse:
    """A request's place among the responses of its connection, until its own has come.

    A handler makes it, returns it, and calls :meth:`complete` once, before or after it returned; it goes out without a
    turn of the event loop in between. Owned by the loop thread.

    Attributes:
        abandon: called if the client leaves before the response.
        encode: makes parts of the response, set by the dispatcher; without it the response is parts already.
        parts: what to send; None for a request that gets no response.
        size: bytes of a response that came at once and stands behind others.
    """

    __slots__ = ("abandon", "done", "encode", "parts", "queue", "ready", "response", "size")

    def __init__(self, abandon: Callable[[], None] | None = None) -> None:
        self.abandon = abandon
        self.encode: Callable[[Any], list[object] | None] | None = None
        self.queue: ResponseQueue | None = None
        self.done = False
        self.response: Any = None
        self.ready = False
        self.parts: list[object] | None = None
        self.size = 0

    def complete(self, response: Any) -> None:
        """Give the response, or the exception that there is instead. A second one is a defect."""
        if self.done:
            raise RuntimeError("this request has been answered before")
        self.done = True
        self.abandon = None
        self.response = response
        if self.queue is not None:
            self._deliver(self.queue)

    def put(self, queue: ResponseQueue) -> None:
        """Take the place at the end of a connection's responses."""
        self.queue = queue
        if self.done:
            self._deliver(queue)

    def _deliver(self, queue: ResponseQueue) -> None:
        response, self.response = self.response, None
        try:
            self.parts = response if self.encode is None else self.encode(response)
        except CloseConnection as error:
            queue.close(str(error))
        else:
            self.ready = True
            queue.on_response_ready()
