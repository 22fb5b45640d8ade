"""Connections to other brokers, for fetchers, for the controller, and for requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.controller.cluster.channel import LinkError
from ottla_broker.network.peer import PeerConnection, PeerError, Peers, PeerUnreachableError, Purpose

if TYPE_CHECKING:
    from ottla_protocol.schema import Message

_CONNECT_SECONDS: Final = 10.0


class FetchLink:
    """A connection of a fetcher, or to the controller; fails with ConnectionError."""

    _failure: type[Exception] = ConnectionError

    def __init__(self, connection: PeerConnection) -> None:
        self._connection = connection

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def version_of(self, api_key: int) -> int:
        try:
            return self._connection.version_of(api_key)
        except PeerError as error:
            raise self._failure(str(error)) from error

    async def submit(self, request: Message, *, timeout: float, version: int | None = None) -> Any:
        try:
            return await self._connection.submit(request, timeout=timeout, version=version)
        except PeerError as error:
            raise self._failure(str(error)) from error

    def close(self) -> None:
        self._connection.close()


class ControlLink(FetchLink):
    """A connection of the controller to a broker; fails with LinkError."""

    _failure = LinkError

    @property
    def on_close(self) -> Callable[[Any], None] | None:
        return self._connection.on_close

    @on_close.setter
    def on_close(self, callback: Callable[[Any], None] | None) -> None:
        self._connection.on_close = callback


class Links:
    """Connects to other brokers and to the controller. Owned by the loop thread."""

    def __init__(self, peers: Peers, controller: Callable[[], int]) -> None:
        """``controller`` returns the controller's broker id, or -1."""
        self._peers = peers
        self._controller = controller

    async def to_leader(self, broker_id: int) -> FetchLink:
        """For one fetcher only: its requests wait at the leader, and others would wait behind them.

        Raises ConnectionError.
        """
        try:
            return FetchLink(await self._peers.connect(broker_id, _CONNECT_SECONDS))
        except PeerError as error:
            raise ConnectionError(str(error)) from error

    async def to_controller(self) -> FetchLink:
        """For requests to the controller. Raises ConnectionError."""
        controller = self._controller()
        if controller < 0:
            raise ConnectionError("no broker is the controller now")
        return await self._link(controller, Purpose.OTHER)

    async def _link(self, broker_id: int, purpose: Purpose) -> FetchLink:
        try:
            return FetchLink(await self._peers.connection(broker_id, purpose, _CONNECT_SECONDS))
        except PeerError as error:
            raise ConnectionError(str(error)) from error
        except asyncio.CancelledError:
            # The attempt was cancelled because the broker's address changed; this task goes on.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ConnectionError(f"broker {broker_id} has moved") from None

    async def to_control(self, broker_id: int, timeout: float) -> ControlLink:
        """For the controller's channel. Raises LinkError."""
        try:
            return ControlLink(await self._peers.connection(broker_id, Purpose.CONTROL, timeout))
        except PeerUnreachableError as error:
            raise LinkError(str(error), error.refused) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise LinkError(f"broker {broker_id} has moved") from None
