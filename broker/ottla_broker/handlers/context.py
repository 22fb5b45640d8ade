"""What a handler gets and may give back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.server import Broker


class RequestContext:
    """One request's surroundings. Made by the connection, read by the handler, gone with the answer."""

    __slots__ = (
        "broker",
        "client_host",
        "client_id",
        "connection_id",
        "correlation_id",
        "listener",
        "version",
    )

    def __init__(
        self,
        broker: Broker,
        version: int,
        client_id: str | None,
        client_host: str,
        connection_id: str,
        listener: str,
        correlation_id: int,
    ) -> None:
        self.broker = broker
        self.version = version
        self.client_id = client_id
        self.client_host = client_host
        self.connection_id = connection_id
        self.listener = listener
        self.correlation_id = correlation_id


class Deferred:
    """An answer that comes later, handed over without a turn of the event loop in between.

    Owned by the loop thread. The handler keeps it and calls :meth:`complete` once; the connection sets
    ``on_complete`` before it returns to the loop. ``abandon`` is called when the client has gone before the answer.
    """

    __slots__ = ("abandon", "done", "on_complete", "response")

    def __init__(self, abandon: Callable[[], None] | None = None) -> None:
        self.done = False
        self.abandon = abandon
        self.on_complete: Callable[[Any], None] | None = None
        self.response: Any = None

    def complete(self, response: Any) -> None:
        """Give the answer, or the exception that there is instead of one; a second one is a bug."""
        if self.done:
            raise RuntimeError("this request has been answered before")
        self.done = True
        if self.on_complete is None:
            self.response = response
        else:
            self.on_complete(response)

    def then(self, callback: Callable[[Any], None]) -> None:
        """Have ``callback(response)`` called with the answer: now if it is there already."""
        if self.done:
            callback(self.response)
        else:
            self.on_complete = callback


def knows_nothing_yet(broker: Broker) -> bool:
    """Whether the controller has still to tell this broker what there is."""
    return broker.joined is not None and not broker.joined.is_set()


def not_here(broker: Broker, topic: str, partition: int) -> KafkaError:
    """The error for a partition that this broker doesn't have: others may lead it, or it may not exist."""
    if knows_nothing_yet(broker):
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    info = broker.metadata.topic(topic)
    if info is not None and partition in info.partitions:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


Answer = Any | Deferred | Awaitable[Any] | None
"""A response message at once, one that comes later, or none at all (produce with acks=0)."""


def client_timeout(timeout_ms: int) -> float:
    """Seconds that a client waits for an answer: at least one, so that a request with no patience is still tried."""
    return max(1.0, timeout_ms / 1000)
