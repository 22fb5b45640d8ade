"""From a frame to its handler and back: the broker's implementation of ``network.service.Service``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from types import GeneratorType
from typing import Any, Final

from ottla_broker.counters import RequestTimes, Timings
from ottla_broker.events import get_logger
from ottla_broker.handlers.api_versions import unsupported
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.long_request import LongRequest
from ottla_broker.handlers.responder import Responder, pack_header
from ottla_broker.handlers.route import Handle, Route
from ottla_broker.handlers.services import Services
from ottla_broker.handlers.turns import at_once
from ottla_broker.network.pending_response import CloseConnection, PendingResponse, given_parts
from ottla_broker.network.service import ClientConnection, Parts, Reply
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
_MEMORY_OF_A_BYTE: Final = 100
"""Two bytes of a request can become an object of two hundred."""


class Dispatcher:
    """Parses requests, calls their handlers and encodes the answers. Owned by the loop thread.

    Attributes:
        times_requests: whether the requests of each API are counted and timed, for metrics.
    """

    def __init__(self, services: Services, loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._served = services.served
        self._responder = Responder(services, loop)
        self._quotas = services.quotas
        self.times_requests = False
        self._routes: dict[tuple[int, int], Route] = {}
        self._unloaded: set[int] = set()
        if services.load_coordinators is not None:
            self._unloaded.update(key for key, served in services.served.items() if served.coordinated)
        self._turns = services.turns

    def handle(self, connection: ClientConnection, frame: memoryview) -> Reply:
        """See :meth:`ottla_broker.network.service.Service.handle`."""
        try:
            header, position = parse_request_header(frame)
        except ProtocolError as error:
            raise CloseConnection(f"a request's header can't be read: {error}") from error
        api_key = header.api_key
        version = header.api_version
        route = self._routes.get((api_key, version))
        if route is None:
            if api_key in self._unloaded:
                return self._when_loaded(api_key, connection, bytes(frame))
            route = self._route(api_key, version)
        if route is None:
            return self._unsupported(header)
        size = len(frame)
        if size > LARGEST_PLAIN_REQUEST and not route.api.is_bulky:
            raise CloseConnection(
                f"{api_name(api_key)} of {size} bytes is too large, {LARGEST_PLAIN_REQUEST} are allowed"
            )
        is_large = size > route.quick_bytes
        counts_at_once = is_large and route.api.is_decoded_at_once
        if is_large and not counts_at_once:
            if not self._is_brokers(route, connection):
                return self._take_turns(route, header, connection, bytes(frame), position, route.api.memory)
            if route.is_between_brokers or size > LONG_BYTES_OF_BROKERS:
                return self._take_turns(route, header, connection, bytes(frame), position, None)
        try:
            if counts_at_once:
                request = route.request_class.decode_counted(frame, version, position, route.api.memory)
            else:
                request, _ = route.decode(frame, position)
        except ProtocolError as error:
            raise CloseConnection(f"{api_name(api_key)} version {version} can't be read: {error}") from error
        connection.client_id = header.client_id
        context = RequestContext(
            self._services, route.rules, version, header.client_id, connection, header.correlation_id
        )
        return self._answer(route, context, request, size)

    def _answer(self, route: Route, context: RequestContext, request: Any, size: int) -> Reply:
        """Have a request handled, and answered at once where its handler is done; ``size``: its bytes."""
        connection, responder, monotonic = context.connection, self._responder, self._services.clock.monotonic
        measured = self._quotas.enabled
        since, timings = 0.0, None
        if self.times_requests:
            timings = route.timings_of(request)
        if measured or timings is not None:
            since = monotonic()
        try:
            if route.gate is None:
                answer = route.handle(context, request)
            else:
                answer = route.refusal(route.gate, context, request) or route.handle(context, request)
            if answer.__class__ is GeneratorType:
                steps = answer
                finished, answer = at_once(steps)
                if measured:
                    context.busy_seconds = monotonic() - since
                if not finished:
                    long = LongRequest(responder, route, context, size, since, timings)
                    reserved = route.api.answer
                    return long.start(long.handled(steps), reserved.memory, reserved.room)
                if hasattr(answer, "__await__"):
                    # It may be answered with very many elements.
                    long = LongRequest(responder, route, context, size, since, timings)
                    return long.start(long.answered(responder.run(answer)))
            if measured:
                context.busy_seconds = monotonic() - since
            if not isinstance(answer, PendingResponse):
                if not hasattr(answer, "__await__"):
                    parts = responder.encode(route, context, size, answer)
                    if timings is not None:
                        now = monotonic()
                        if connection.waiting_since:
                            timings.add(connection.waiting_since, since, now, now)
                        else:
                            timings.direct.add(now - since)
                    return parts
                answer = responder.run(answer)
            ended = None
            if timings is not None:
                handled = monotonic()
                ended = partial(timings.add, connection.waiting_since, since, handled)
            answer.encode = partial(responder.encode_pending, route, context, size, ended)
            return answer
        except CloseConnection:
            raise  # the handler closes the connection: produce with acks=0 has no response for an error
        except Exception as error:
            raise responder.failed(route, context, error) from error

    def _is_brokers(self, route: Route, connection: ClientConnection) -> bool:
        """Whether a request comes from another broker, as large as its share of the cluster."""
        return route.api.senders != "clients" and self._services.authorizer.is_brokers(connection)

    def _take_turns(
        self,
        route: Route,
        header: RequestHeader,
        connection: ClientConnection,
        frame: bytes,
        position: int,
        memory: int | None,
    ) -> PendingResponse:
        """Decode, handle and answer a large request in turns with everything else.

        ``memory``: how many bytes its elements may take; None for another broker's request, which isn't limited.
        """
        connection.client_id = header.client_id
        context = RequestContext(
            self._services,
            route.rules,
            header.api_version,
            header.client_id,
            connection,
            header.correlation_id,
        )
        long = LongRequest(self._responder, route, context, len(frame), self._services.clock.monotonic())
        if memory is None:
            return long.start(long.serve(frame, position, _UNLIMITED))
        reserved = route.api.answer
        taken = max(min(memory, _MEMORY_OF_A_BYTE * len(frame)), reserved.memory)
        return long.start(long.serve(frame, position, memory), taken, reserved.room)

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
        """Cancel pending requests."""
        self._turns.close()
        self._responder.close()

    def _route(self, api_key: int, version: int) -> Route | None:
        served = self._served.get(api_key)
        if served is None:
            raise CloseConnection(f"{api_name(api_key)} is not an API that this broker serves")
        if not served.min_version <= version <= served.max_version:
            return None
        route = Route(served, api_key, version, self._services.authorizer)
        if self.times_requests:
            route.timings = RequestTimes()
            route.throttles = Timings()
            if api_key == ApiKey.FETCH:
                route.follower_timings = RequestTimes()
        joined = self._services.joined
        if joined is None or joined.is_set() or not route.api.describes_cluster:
            self._routes[api_key, version] = route
        else:
            route.handle = partial(self._when_joined, joined, route.handle)
        return route

    def _when_loaded(self, api_key: int, connection: ClientConnection, frame: bytes) -> PendingResponse:
        """Delay a request until the coordinators are loaded; meanwhile nothing is read from its connection."""
        load = self._services.load_coordinators
        assert load is not None
        connection.begin_long()

        async def serve() -> Reply:
            try:
                await load(self._served[api_key].of_groups)
            except Exception as error:
                raise CloseConnection(f"a coordinator can't be built: {error}") from error
            finally:
                connection.end_long()
            self._unloaded.discard(api_key)
            return None if connection.has_left() else self.handle(connection, memoryview(frame))

        pending = self._responder.run(serve())
        pending.encode = given_parts
        return pending

    async def _when_joined(
        self, joined: asyncio.Event, handle: Handle, context: RequestContext, request: Any
    ) -> Any:
        """Delay a request until this broker knows the cluster."""
        try:
            async with self._services.clock.timeout(_JOIN_SECONDS):
                await joined.wait()
        except TimeoutError:
            raise CloseConnection("the controller has not described the cluster to this broker yet") from None
        answer = handle(context, request)
        if answer.__class__ is GeneratorType:
            answer = await self._turns.run(answer, context.connection)
        return await answer if hasattr(answer, "__await__") else answer

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
