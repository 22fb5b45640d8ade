"""The connections on which brokers ask each other, as the network makes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol


class BrokerLink(Protocol):
    """An open connection to another broker. Failures raise ConnectionError."""

    on_close: Callable[[ConnectionError | None], None] | None

    @property
    def closed(self) -> bool: ...
    def version_of(self, api_key: int) -> int: ...
    def submit(self, request: Any, *, timeout: float, version: int | None = None) -> Awaitable[Any]: ...
    def close(self) -> None: ...
