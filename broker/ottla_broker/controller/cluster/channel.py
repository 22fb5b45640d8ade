"""Sends each broker the controller's requests in order, and notices brokers that don't respond.

Kafka's ``ControllerChannelManager``. A channel keeps a connection open even when there is nothing to send, because a
process that dies closes its sockets: if the connection breaks and a new one is refused, the broker is gone, long before
its session ends. That judgement may be wrong, so it only leads to writes that are safe in either case (see
``controller``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.replica.broker_link import BrokerLink
from ottla_broker.tasks import in_pauses
from ottla_protocol.errors import ErrorCode
from ottla_protocol.exchange import Encoded
from ottla_protocol.schema import Message

_log = get_logger()

REQUEST_SECONDS: Final = 30.0
"""``controller.socket.timeout.ms``: a broker that has not responded by then gets the request again."""
MOST_WAITING: Final = 2000
"""A broker with this many waiting requests counts as gone. It gets the full state when it responds again."""
_CONNECT_SECONDS: Final = 5.0
_REFUSALS: Final = 2
"""How many refused connections in a row mean that the process is gone."""
_RETRY_SECONDS: Final = (0.05, 1.0)
"""The pause after the first failure, doubled after each further one up to the second number."""
_REPEATS: Final = 30
"""How often to repeat a request that a broker could not carry out."""

_FINAL: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.STALE_CONTROLLER_EPOCH,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


Building = Generator[None, None, "Message"]
"""Builds a request, and yields after every few hundred of its partitions."""

Build = Callable[[int], Building]
"""Builds a request in a version."""

Connect = Callable[[int, float], Awaitable[BrokerLink]]
"""Connects to a broker within a number of seconds; raises ConnectionError, ``refused`` if its address refuses it."""


class QueuedRequest(NamedTuple):
    """A request to a broker; ``on_response`` gets the response, or None if the broker is gone before it."""

    api_key: int
    build: Build
    on_response: Callable[[Any], None] | None = None

    def complete(self, response: Any) -> None:
        if self.on_response is not None:
            self.on_response(response)


class Listener(NamedTuple):
    """Called with a broker that became unreachable, that responds again, or that obeys a newer controller."""

    unreachable: Callable[[int], None]
    reachable: Callable[[int], None]
    newer_controller: Callable[[int], None]


class Channel:
    """The connection to one broker. Owned by the loop thread; one task sends."""

    def __init__(self, broker_id: int, connect: Connect, clock: Clock, listener: Listener) -> None:
        self.broker_id = broker_id
        self._connect = connect
        self._clock = clock
        self._listener = listener
        self._queue: deque[QueuedRequest] = deque()
        self._in_flight: QueuedRequest | None = None
        self._wake = asyncio.Event()
        self._gone = False
        self._rest = _RETRY_SECONDS[0]
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, request: QueuedRequest) -> None:
        """Send a request after those that wait; again after a broken connection, until the broker responds."""
        if len(self._queue) >= MOST_WAITING and not self._gone:
            self._set_unreachable(f"{len(self._queue)} requests wait for it")
        if self._gone:
            request.complete(None)
            return
        self._queue.append(request)
        self._wake.set()

    def drop(self) -> None:
        """Complete all requests without a response: the broker will get the full state."""
        requests, self._queue = list(self._queue), deque()
        if self._in_flight is not None:
            requests.insert(0, self._in_flight)
            self._in_flight = None
        for request in requests:
            request.complete(None)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self.drop()

    def _set_unreachable(self, reason: str) -> None:
        if self._gone:
            return
        self._gone = True
        _log.warning("broker unreachable", broker=self.broker_id, reason=reason)
        self.drop()
        self._listener.unreachable(self.broker_id)

    def _set_reachable(self) -> None:
        if self._gone:
            self._gone = False
            _log.info("broker reachable again", broker=self.broker_id)
            self._listener.reachable(self.broker_id)

    async def _run(self) -> None:
        link: BrokerLink | None = None
        refusals = 0
        reason = ""
        try:
            while True:
                try:
                    if link is None or link.closed:
                        link = await self._connect(self.broker_id, _CONNECT_SECONDS)
                        link.on_close = lambda _: self._wake.set()
                    refusals = 0
                    self._set_reachable()
                    await self._serve(link)
                except ConnectionError as error:
                    if link is not None:
                        link.close()
                    refusals = refusals + 1 if getattr(error, "refused", False) else 0
                    if str(error) != reason:
                        reason = str(error)
                        _log.info("no connection to a broker", broker=self.broker_id, reason=reason)
                    if refusals == _REFUSALS:
                        self._set_unreachable(f"its address refuses connections: {error}")
                    if refusals != 1:
                        await self._clock.sleep(self._rest)
                        self._rest = min(_RETRY_SECONDS[1], self._rest * 2)
                except Exception as error:
                    _log.error("the channel to a broker failed", broker=self.broker_id, exc_info=error)
                    await self._clock.sleep(_RETRY_SECONDS[1])
        finally:
            if link is not None:
                link.close()

    async def _serve(self, link: BrokerLink) -> None:
        """Send the queued requests until the connection closes. Raises ConnectionError."""
        while not link.closed:
            self._wake.clear()
            if not self._queue:
                await self._wake.wait()
                continue
            queued = self._in_flight = self._queue.popleft()
            try:
                response = await self._request(link, queued)
            except ConnectionError:
                if self._is_in_flight(queued):
                    self._queue.appendleft(queued)
                    self._in_flight = None
                raise
            except Exception as error:
                # The request would fail again.
                _log.error("a request to a broker failed", broker=self.broker_id, exc_info=error)
                response = None
            if self._is_in_flight(queued):
                self._in_flight = None
                queued.complete(response)

    def _is_in_flight(self, queued: QueuedRequest) -> bool:
        """Whether :meth:`drop` has not completed the request in the meantime."""
        return self._in_flight is queued

    async def _request(self, link: BrokerLink, queued: QueuedRequest) -> Any:
        """Repeat the request while the broker can't carry it out, as without ZooKeeper. Raises ConnectionError."""
        version = link.version_of(queued.api_key)
        request = await _build(queued.build(version), version)
        rest, most = _RETRY_SECONDS
        for _ in range(_REPEATS):
            response = await link.submit(request, timeout=REQUEST_SECONDS, version=version)
            self._rest = _RETRY_SECONDS[0]
            self._set_reachable()
            if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
                self._listener.newer_controller(self.broker_id)
            if response.error_code in _FINAL or not self._is_in_flight(queued):
                break
            _log.warning(
                "a broker could not carry out a request",
                broker=self.broker_id,
                request=request.name,
                error=ErrorCode(response.error_code).name,
            )
            await self._clock.sleep(rest)
            rest = min(most, rest * 2)
        return response


async def _build(building: Building, version: int) -> Encoded:
    """Build and encode a request, a large one with pauses for others.

    One that can't be encoded fails here, so that it isn't taken for a broken connection and sent again.
    """
    request, pauses = await in_pauses(building)
    if not pauses:
        return Encoded(request, version, request.encode_parts(version))
    parts, _ = await in_pauses(request.encode_in_slices(version))
    return Encoded(request, version, parts)


class Channels:
    def __init__(self, connect: Connect, clock: Clock, listener: Listener) -> None:
        self._connect = connect
        self._clock = clock
        self._listener = listener
        self._channels: dict[int, Channel] = {}

    def add(self, broker_id: int) -> None:
        if broker_id not in self._channels:
            self._channels[broker_id] = Channel(broker_id, self._connect, self._clock, self._listener)

    async def remove(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            await channel.close()

    def send(self, broker_id: int, request: QueuedRequest) -> None:
        channel = self._channels.get(broker_id)
        if channel is None:
            request.complete(None)
        else:
            channel.send(request)

    async def close(self) -> None:
        for broker_id in list(self._channels):
            await self.remove(broker_id)
