"""What the controller sends to each broker, in order, and what it learns of a broker that doesn't answer.

Kafka's ``ControllerChannelManager``. A channel keeps a connection open whether or not there is something to send, for
a process that dies closes its sockets: when the connection breaks and a new one is refused, the broker is gone long
before its session is over. That is a judgement, and may be wrong; so it only ever leads to writes that are safe in
either case (see ``controller``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger

if TYPE_CHECKING:
    from ottla_protocol.schema import Message

log = get_logger()

REQUEST_SECONDS: Final = 30.0
"""``controller.socket.timeout.ms``: a broker that has not answered by then gets the request again."""
_CONNECT_SECONDS: Final = 5.0
_REFUSALS: Final = 2
"""How many refused connections in a row mean that nobody is there."""
_RETRY_SECONDS: Final = 0.05


class LinkError(Exception):
    """A broker can't be reached, or has not answered. ``refused``: nobody listens at its address."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class Link(Protocol):
    """An open connection to a broker."""

    on_close: Callable[[Any], None] | None

    @property
    def closed(self) -> bool: ...

    def version_of(self, api_key: int) -> int: ...

    def submit(self, request: Message, *, timeout: float, version: int | None = None) -> Awaitable[Any]: ...

    def close(self) -> None: ...


Build = Callable[[int], "Message"]
"""Makes a request in a version."""


class Order(NamedTuple):
    """A request to a broker, and who is to hear the answer (None when the broker has gone first)."""

    api_key: int
    build: Build
    answered: Callable[[Any], None] | None = None


class Channel:
    """The way to one broker. Owned by the controller's loop thread; one task sends.

    ``on_gone`` is called when nobody listens at the broker's address any more, ``on_back`` when a connection works
    again after that.
    """

    def __init__(
        self,
        broker_id: int,
        connect: Callable[[int, float], Awaitable[Link]],
        clock: Clock,
        on_gone: Callable[[int], None],
        on_back: Callable[[int], None],
    ) -> None:
        """``connect`` takes a broker and a timeout, and raises LinkError."""
        self.broker_id = broker_id
        self._connect = connect
        self._clock = clock
        self._on_gone = on_gone
        self._on_back = on_back
        self._orders: deque[Order] = deque()
        self._wake = asyncio.Event()
        self._gone = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, order: Order) -> None:
        """Send in order with the others; again after a broken connection, until it is answered."""
        self._orders.append(order)
        self._wake.set()

    def drop(self) -> None:
        """Forget what has not been answered: the broker will be told all anew."""
        orders, self._orders = self._orders, deque()
        for order in orders:
            if order.answered is not None:
                order.answered(None)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self.drop()

    async def _run(self) -> None:
        link: Link | None = None
        refusals = 0
        try:
            while True:
                try:
                    if link is None or link.closed:
                        link = await self._connect(self.broker_id, _CONNECT_SECONDS)
                        link.on_close = lambda _: self._wake.set()
                    refusals = 0
                    if self._gone:
                        self._gone = False
                        log.info("broker answers again", broker=self.broker_id)
                        self._on_back(self.broker_id)
                    await self._serve(link)
                except LinkError as error:
                    refusals = refusals + 1 if error.refused else 0
                    if refusals == _REFUSALS and not self._gone:
                        self._gone = True
                        log.warning(
                            "broker is gone: nobody listens at its address",
                            broker=self.broker_id,
                            reason=str(error),
                        )
                        self._on_gone(self.broker_id)
                    await asyncio.sleep(0 if refusals == 1 else _RETRY_SECONDS)
                except Exception as error:
                    log.error("telling a broker failed", broker=self.broker_id, exc_info=error)
                    # What it failed on would fail again.
                    if self._orders:
                        order = self._orders.popleft()
                        if order.answered is not None:
                            order.answered(None)
        finally:
            if link is not None:
                link.close()

    async def _serve(self, link: Link) -> None:
        """Send what there is; returns when the connection has closed. Raises LinkError."""
        while not link.closed:
            self._wake.clear()
            if not self._orders:
                await self._wake.wait()
                continue
            order = self._orders[0]
            version = link.version_of(order.api_key)
            answer = await link.submit(order.build(version), timeout=REQUEST_SECONDS, version=version)
            # While it was under way the queue may have been dropped.
            if self._orders and self._orders[0] is order:
                self._orders.popleft()
            if order.answered is not None:
                order.answered(answer)


class Channels:
    """A channel for each registered broker."""

    def __init__(
        self,
        connect: Callable[[int, float], Awaitable[Link]],
        clock: Clock,
        on_gone: Callable[[int], None],
        on_back: Callable[[int], None],
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._on_gone = on_gone
        self._on_back = on_back
        self._channels: dict[int, Channel] = {}

    def add(self, broker_id: int) -> None:
        if broker_id not in self._channels:
            self._channels[broker_id] = Channel(
                broker_id, self._connect, self._clock, self._on_gone, self._on_back
            )

    async def remove(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            await channel.close()

    def send(self, broker_id: int, order: Order) -> None:
        """To a broker that has no channel nothing is sent."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.send(order)
        elif order.answered is not None:
            order.answered(None)

    def drop(self, broker_id: int) -> None:
        """Forget what a broker has not answered."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.drop()

    async def close(self) -> None:
        for broker_id in list(self._channels):
            await self.remove(broker_id)
