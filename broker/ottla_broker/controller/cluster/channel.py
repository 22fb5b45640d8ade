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

from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla_protocol.schema import Message

log = get_logger()

REQUEST_SECONDS: Final = 30.0
"""``controller.socket.timeout.ms``: a broker that has not answered by then gets the request again."""
MOST_WAITING: Final = 2000
"""A broker with so many requests before it is as good as gone; when it answers again it is told everything anew."""
_CONNECT_SECONDS: Final = 5.0
_REFUSALS: Final = 2
"""How many refused connections in a row mean that nobody is there."""
_RETRY_SECONDS: Final = (0.05, 1.0)
"""The rest after a failure: at first, and at most; doubled each time."""
_REPEATS: Final = 30
"""How often a broker that could not do what it was told is asked again."""

_FINAL: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.STALE_CONTROLLER_EPOCH,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


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

Connect = Callable[[int, float], Awaitable[Link]]
"""Takes a broker and how many seconds it may take; raises LinkError."""


class QueuedRequest(NamedTuple):
    """A request to a broker, and who is to hear the answer (None when the broker has gone first)."""

    api_key: int
    build: Build
    answered: Callable[[Any], None] | None = None

    def settle(self, answer: Any) -> None:
        if self.answered is not None:
            self.answered(answer)


class Listener(NamedTuple):
    """Who hears of brokers: ``gone``: nobody listens at its address any more; ``back``: it answers again after that;
    ``stale``: it obeys a controller with a higher epoch.
    """

    gone: Callable[[int], None]
    back: Callable[[int], None]
    stale: Callable[[int], None]


class Channel:
    """The way to one broker. Owned by the controller's loop thread; one task sends."""

    def __init__(self, broker_id: int, connect: Connect, listener: Listener) -> None:
        self.broker_id = broker_id
        self._connect = connect
        self._listener = listener
        self._orders: deque[QueuedRequest] = deque()
        self._under_way: QueuedRequest | None = None
        self._wake = asyncio.Event()
        self._gone = False
        self._rest = _RETRY_SECONDS[0]
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, order: QueuedRequest) -> None:
        """Send in order with the others; again after a broken connection, until it is answered."""
        if len(self._orders) >= MOST_WAITING and not self._gone:
            self._take_for_gone(f"{len(self._orders)} requests wait for it")
        if self._gone:
            order.settle(None)
            return
        self._orders.append(order)
        self._wake.set()

    def drop(self) -> None:
        """Forget what has not been answered: the broker will be told all anew."""
        orders, self._orders = list(self._orders), deque()
        if self._under_way is not None:
            orders.insert(0, self._under_way)
            self._under_way = None
        for order in orders:
            order.settle(None)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self.drop()

    def _take_for_gone(self, reason: str) -> None:
        if self._gone:
            return
        self._gone = True
        log.warning("broker taken for gone", broker=self.broker_id, reason=reason)
        self.drop()
        self._listener.gone(self.broker_id)

    def _answers(self) -> None:
        if self._gone:
            self._gone = False
            log.info("broker answers again", broker=self.broker_id)
            self._listener.back(self.broker_id)

    async def _run(self) -> None:
        link: Link | None = None
        refusals = 0
        reason = ""
        try:
            while True:
                try:
                    if link is None or link.closed:
                        link = await self._connect(self.broker_id, _CONNECT_SECONDS)
                        link.on_close = lambda _: self._wake.set()
                    refusals = 0
                    self._answers()
                    await self._serve(link)
                except LinkError as error:
                    if link is not None:
                        link.close()
                    refusals = refusals + 1 if error.refused else 0
                    if str(error) != reason:
                        reason = str(error)
                        log.info("broker not reached", broker=self.broker_id, reason=reason)
                    if refusals == _REFUSALS:
                        self._take_for_gone(f"nobody listens at its address: {error}")
                    if refusals != 1:
                        await asyncio.sleep(self._rest)
                        self._rest = min(_RETRY_SECONDS[1], self._rest * 2)
                except Exception as error:
                    log.error("the way to a broker failed", broker=self.broker_id, exc_info=error)
                    await asyncio.sleep(_RETRY_SECONDS[1])
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
            order = self._under_way = self._orders.popleft()
            try:
                answer = await self._ask(link, order)
            except LinkError:
                if self._is_under_way(order):
                    self._orders.appendleft(order)
                    self._under_way = None
                raise
            except Exception as error:
                # What it failed on would fail again.
                log.error("telling a broker failed", broker=self.broker_id, exc_info=error)
                answer = None
            if self._is_under_way(order):
                self._under_way = None
                order.settle(answer)

    def _is_under_way(self, order: QueuedRequest) -> bool:
        """Not so when it has been dropped meanwhile."""
        return self._under_way is order

    async def _ask(self, link: Link, order: QueuedRequest) -> Any:
        """A broker that could not do what it was told, as without ZooKeeper, is told again. Raises LinkError."""
        version = link.version_of(order.api_key)
        request = order.build(version)
        rest, most = _RETRY_SECONDS
        for _ in range(_REPEATS):
            answer = await link.submit(request, timeout=REQUEST_SECONDS, version=version)
            self._rest = _RETRY_SECONDS[0]
            self._answers()
            if answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
                self._listener.stale(self.broker_id)
            if answer.error_code in _FINAL or not self._is_under_way(order):
                break
            log.warning(
                "a broker could not do what it was told",
                broker=self.broker_id,
                request=type(request).__name__,
                error=ErrorCode(answer.error_code).name,
            )
            await asyncio.sleep(rest)
            rest = min(most, rest * 2)
        return answer


class Channels:
    """A channel for each registered broker."""

    def __init__(self, connect: Connect, listener: Listener) -> None:
        self._connect = connect
        self._listener = listener
        self._channels: dict[int, Channel] = {}

    def add(self, broker_id: int) -> None:
        if broker_id not in self._channels:
            self._channels[broker_id] = Channel(broker_id, self._connect, self._listener)

    async def remove(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            await channel.close()

    def send(self, broker_id: int, order: QueuedRequest) -> None:
        """To a broker that has no channel nothing is sent."""
        channel = self._channels.get(broker_id)
        if channel is None:
            order.settle(None)
        else:
            channel.send(order)

    async def close(self) -> None:
        for broker_id in list(self._channels):
            await self.remove(broker_id)
