"""The response to a request that can't be answered at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class CloseConnection(Exception):
    """A request can't be answered. Its connection is closed, with the message as the reason."""


class ResponseQueue(Protocol):
    """A connection, whose responses go out in the order of their requests."""

    def on_response_ready(self) -> None: ...

    def close(self, reason: str | None) -> None: ...


class PendingResponse:
    """A request's place among the responses of its connection.

    A handler makes it, returns it, and calls :meth:`complete` once, before or after it returns. The response goes out
    without another turn of the event loop. Owned by the loop thread.

    Attributes:
        abandon: called if the client leaves before the response.
        encode: turns the response into parts, set by the dispatcher; without it the response is already parts.
        parts: the bytes to send; None for a request that gets no response.
        size: bytes of a finished response that waits behind others; ``held``: those of them in memory.
    """

    __slots__ = (
        "abandon",
        "done",
        "encode",
        "followed",
        "held",
        "parts",
        "queue",
        "ready",
        "response",
        "size",
    )

    def __init__(self, abandon: Callable[[], None] | None = None) -> None:
        self.abandon = abandon
        self.encode: Callable[[Any], list[object] | None] | None = None
        self.queue: ResponseQueue | None = None
        self.followed: PendingResponse | None = None
        self.done = False
        self.response: Any = None
        self.ready = False
        self.parts: list[object] | None = None
        self.size = self.held = 0

    def complete(self, response: Any) -> None:
        """Give the response, or the exception that replaces it. A second call is a defect."""
        if self.done:
            raise RuntimeError("this request has been answered before")
        self.done = True
        self.abandon = None
        self.response = response
        if self.queue is not None:
            self._deliver(self.queue)

    def put(self, queue: ResponseQueue) -> None:
        """Join the end of a connection's responses."""
        self.queue = queue
        if self.done:
            self._deliver(queue)

    def follow(self, other: PendingResponse) -> None:
        """Complete this with what ``other`` is encoded to, and abandon ``other`` with it."""
        self.followed, self.abandon = other, self._abandon_followed
        other.put(self)

    def on_response_ready(self) -> None:
        """The followed response is ready; see :class:`ResponseQueue`."""
        assert self.followed is not None
        self.complete(self.followed.parts)

    def close(self, reason: str | None) -> None:
        """The followed response can't be given; see :class:`ResponseQueue`."""
        self.complete(CloseConnection(reason))

    def _abandon_followed(self) -> None:
        assert self.followed is not None
        if self.followed.abandon is not None:
            self.followed.abandon()

    def _deliver(self, queue: ResponseQueue) -> None:
        response, self.response = self.response, None
        try:
            self.parts = response if self.encode is None else self.encode(response)
        except CloseConnection as error:
            queue.close(str(error))
        else:
            self.ready = True
            queue.on_response_ready()


def given_parts(answer: list[object] | CloseConnection | None) -> list[object] | None:
    """Return an answer that is already encoded, for a pending response, or else close the connection."""
    if isinstance(answer, CloseConnection):
        raise answer
    return answer
