"""From a frame to its handler and back: the broker's implementation of ``network.service.Service``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from ottla_broker.counters import RequestTimes, Timings
from ottla_broker.events import get_logger
from ottla_broker.handlers.api_versions import unsupported
from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.network.service import ClientConnection, Parts, Reply
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Running, if_left, in_slices, in_task, unread
from ottla_broker.requests.responder import Responder, pack_header
from ottla_broker.requests.route import Handle, Route
from ottla_broker.requests.services import Services
from ottla_broker.requests.serving import Serving, reply_of
from ottla_broker.requests.turns import Purpose, Reservation
from ottla_protocol.api_keys import ApiKey, api_name
from ottla_protocol.errors import ErrorCode, ProtocolError
from ottla_protocol.header import RequestHeader, parse_request_header

_log = get_logger()

_API_VERSIONS = int(ApiKey.API_VERSIONS)

LONG_BYTES_OF_BROKERS: Final = 32 * 1024
"""Larger ones take turns with everything else; smaller ones, of which replication sends many, are served at once."""

LARGEST_PLAIN_REQUEST = 8 * 1024 * 1024
"""The largest request, in bytes, of an API without records or assignments. Its many small values take tens of times
their size in memory. Requests of real clients are far smaller."""

_JOIN_SECONDS = 30.0
"""How long such a request waits until its connection is closed, so that its client asks another broker."""

_UNLIMITED = 1 << 62
_NOTHING: Final = Reservation(Purpose.REQUESTS, 0)
_MEMORY_OF_A_BYTE: Final = 100
"""Two bytes of a request can become an object of two hundred."""


class Dispatcher:
    """Parses requests, calls their handlers and encodes the answers. Owned by the loop thread.

    Attributes:
        times_requests: whether the requests of each API are counted and timed, for metrics.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._served = services.served
        self._responder = Responder(services)
        self._waiting: set[Running[Any]] = set()
        self.times_requests = False
        self._routes: dict[tuple[int, int], Route] = {}
        self._unloaded: set[int] = set()
        if services.load_coordinators is not None:
            self._unloaded.update(key for key, served in services.served.items() if served.coordinated)
        self._turns = services.turns

    def handle(self, connection: ClientConnection, frame: memoryview) -> Reply:
        """See :meth:`ottla_broker.network.service.Service.handle`."""
        serving = self._serving(connection, frame)
        return serving if isinstance(serving, list) else reply_of(serving.start())

    def _serving(self, connection: ClientConnection, frame: memoryview) -> Running[Parts | None] | Parts:
        """What serves a request, or the answer to one that isn't served. Raises CloseConnection."""
        try:
            header, position = parse_request_header(frame)
        except ProtocolError as error:
            raise CloseConnection(f"a request's header can't be read: {error}") from error
        api_key, version = header.api_key, header.api_version
        route = self._routes.get((api_key, version))
        if route is None:
            if api_key in self._unloaded:
                return Running(self._when_loaded(api_key, connection, bytes(frame)), self._waiting)
            route = self._route(api_key, version)
        if route is None:
            return self._unsupported(header)
        size = len(frame)
        if size > LARGEST_PLAIN_REQUEST and not route.api.is_bulky:
            raise CloseConnection(
                f"{api_name(api_key)} of {size} bytes is too large, {LARGEST_PLAIN_REQUEST} are allowed"
            )
        connection.client_id = header.client_id
        context = RequestContext(
            self._services, route.rules, version, header.client_id, connection, header.correlation_id
        )
        is_large = size > route.quick_bytes
        if is_large and not route.api.is_decoded_at_once:
            if not self._is_brokers(route, connection):
                taken = max(min(route.api.memory, _MEMORY_OF_A_BYTE * size), route.api.answer.memory)
                work = self._decoded_in_turns(route, context, bytes(frame), position, route.api.memory)
                reserved = Reservation(route.api.answer.purpose, taken)
                return Serving(work, self._waiting, context, route.api, reserved)
            if route.is_between_brokers or size > LONG_BYTES_OF_BROKERS:
                work = self._decoded_in_turns(route, context, bytes(frame), position, _UNLIMITED)
                return Serving(work, self._waiting, context, route.api, _NOTHING)
        try:
            if is_large:
                request = route.request_class.decode_counted(frame, version, position, route.api.memory)
            else:
                request, _ = route.decode(frame, position)
        except ProtocolError as error:
            raise _unreadable(route, context, error) from error
        work = self._served_request(route, context, request, size, self._since(route))
        return Serving(work, self._waiting, context, route.api)

    def _since(self, route: Route) -> float:
        """When the request's handler begins, if anyone wants to know."""
        return self._services.clock.monotonic() if route.timings is not None else 0.0

    async def _decoded_in_turns(
        self, route: Route, context: RequestContext, frame: bytes, position: int, memory: int
    ) -> Parts | None:
        """Serve a large request. ``position`` is that of the body; ``memory``: the bytes its elements may take."""
        since, size = self._since(route), len(frame)
        try:
            request = await in_slices(
                route.request_class.decode_in_slices(frame, context.version, position, memory)
            )
        except ProtocolError as error:
            raise _unreadable(route, context, error) from error
        del frame
        served = self._served_request(route, context, request, size, since)
        del request
        return await served

    async def _served_request(
        self, route: Route, context: RequestContext, request: Any, size: int, since: float
    ) -> Parts | None:
        """Handle a request, and encode the answer. ``size``: its bytes. Raises CloseConnection."""
        timings = None if route.timings is None else route.timings_of(request)
        waiting_since = context.connection.waiting_since
        try:
            response = None if route.gate is None else route.refusal(route.gate, context, request)
            if response is None:
                handled = route.handle(context, request)
                # Nothing that waits may hold the request: its records may be as large as its frame.
                del request
                response = await handled
            parts = await self._responder.encode(route, context, size, response)
        except CloseConnection:
            raise  # the handler closes the connection: produce with acks=0 has no response for an error
        except Exception as error:
            raise self._responder.failed(route, context, error) from error
        if timings is not None:
            now = self._services.clock.monotonic()
            if waiting_since or context.waited or context.in_turns:
                timings.add(waiting_since, since, now - context.waited, now)
            else:
                timings.direct.add(now - since)
        return parts

    def _is_brokers(self, route: Route, connection: ClientConnection) -> bool:
        """Whether a request comes from another broker, as large as its share of the cluster."""
        return route.api.senders != "clients" and self._services.authorizer.is_brokers(connection)

    def timings(self) -> Iterator[tuple[int, int, RequestTimes | None, RequestTimes | None]]:
        """API, version, and how long its requests took; apart, how long followers' fetches took."""
        for (api_key, version), route in list(self._routes.items()):
            yield api_key, version, route.timings, route.follower_timings

    def throttles(self) -> Iterator[tuple[int, Timings]]:
        """API, and how long clients had to wait for their quotas."""
        for (api_key, _), route in list(self._routes.items()):
            if route.throttles is not None:
                yield api_key, route.throttles

    def close(self) -> None:
        """Cancel what requests wait for."""
        self._turns.close()
        for running in tuple(self._waiting):
            running.stop()

    def _route(self, api_key: int, version: int) -> Route | None:
        served = self._served.get(api_key)
        if served is None:
            raise CloseConnection(f"{api_name(api_key)} is not an API that this broker serves")
        if not served.min_version <= version <= served.max_version:
            return None
        services = self._services
        route = Route(served, api_key, version, services.authorizer)
        if self.times_requests:
            route.timings = RequestTimes()
            route.throttles = Timings()
            if api_key == ApiKey.FETCH:
                route.follower_timings = RequestTimes()
        joined = services.joined
        if joined is None or joined.is_set() or not route.api.describes_cluster:
            self._routes[api_key, version] = route
        else:
            route.handle = partial(self._when_joined, joined, route.handle)
        return route

    async def _when_loaded(self, api_key: int, connection: ClientConnection, frame: bytes) -> Parts | None:
        """Delay a request until the coordinators are loaded; meanwhile nothing is read from its connection."""
        load = self._services.load_coordinators
        assert load is not None
        try:
            with unread(connection):
                await in_task(load(self._served[api_key].of_groups))
        except Exception as error:
            raise CloseConnection(f"a coordinator can't be built: {error}") from error
        self._unloaded.discard(api_key)
        if connection.has_left():
            raise CloseConnection("the client has left")
        serving = self._serving(connection, memoryview(frame))
        if isinstance(serving, list):
            return serving
        with if_left(serving.abandon):
            return await serving.start()

    async def _when_joined(
        self, joined: asyncio.Event, handle: Handle, context: RequestContext, request: Any
    ) -> Any:
        """Delay a request until this broker knows the cluster."""
        try:
            await in_task(self._joins(joined))
        except TimeoutError:
            raise CloseConnection("the controller has not described the cluster to this broker yet") from None
        return await handle(context, request)

    async def _joins(self, joined: asyncio.Event) -> None:
        async with self._services.clock.timeout(_JOIN_SECONDS):
            await joined.wait()

    def _unsupported(self, header: RequestHeader) -> Parts:
        """Answer a version that isn't served if the client can read the response; otherwise close."""
        api_key, version = header.api_key, header.api_version
        if api_key == _API_VERSIONS:
            # Always in version 0, with this API's own range (KIP-511).
            body = unsupported(self._served).encode(0)
            return [pack_header(len(body) + 4, header.correlation_id) + body]
        served = self._served[api_key]
        raise CloseConnection(
            f"{api_name(api_key)} version {version} is not served, versions {served.min_version} to"
            f" {served.max_version} are ({ErrorCode.UNSUPPORTED_VERSION.name})"
        )


def _unreadable(route: Route, context: RequestContext, error: ProtocolError) -> CloseConnection:
    return CloseConnection(f"{api_name(route.api_key)} version {context.version} can't be read: {error}")
