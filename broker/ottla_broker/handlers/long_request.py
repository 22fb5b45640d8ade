"""A request that is decoded, handled and answered in turns with everything else on the event loop."""

from __future__ import annotations

from collections.abc import Generator
from types import GeneratorType
from typing import Any

from ottla_broker.counters import RequestTimes
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.responder import Responder
from ottla_broker.handlers.route import Route
from ottla_broker.handlers.turns import TURN, Job, Room, in_slices
from ottla_broker.network.pending_response import CloseConnection, PendingResponse, given_parts
from ottla_broker.network.service import Parts, client_of
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ProtocolError


class LongRequest:
    """Owned by the loop thread. Nothing is read from its connection until it is answered, as in Kafka."""

    def __init__(
        self,
        responder: Responder,
        route: Route,
        context: RequestContext,
        size: int,
        since: float,
        timings: RequestTimes | None = None,
    ) -> None:
        """``size``: the request's bytes. ``since``: when it began, on the monotonic clock."""
        self._responder = responder
        self._route = route
        self._context = context
        self._client = client_of(context.connection)
        self._size = size
        self._since = since
        self._timings = timings
        self._waiting_since = context.connection.waiting_since
        # How long the handler waited, and when its wait began.
        self._waited = self._waits_since = 0.0
        self._abandoned = False
        # What a handler waits for.
        self._inner: PendingResponse | None = None
        self._pending = PendingResponse(self._abandon)
        self._pending.encode = given_parts

    def start(self, work: Job, memory: int = 0, kind: Room = Room.REQUESTS) -> PendingResponse:
        """Begin with ``work``, which :meth:`serve`, :meth:`handled` or :meth:`answered` has made.

        ``memory``: the bytes that it may take for what ``kind`` says.
        """
        self._context.connection.begin_long()
        self._context.services.turns.start(self._guarded(work), self._client, memory, kind)
        return self._pending

    def serve(self, frame: bytes, position: int, memory: int) -> Job:
        """Decode the request and all that follows.

        ``position`` is that of the body; ``memory``: how many bytes its elements may take.
        """
        route, context = self._route, self._context
        try:
            request = yield from in_slices(
                route.request_class.decode_in_slices(frame, context.version, position, memory)
            )
        except ProtocolError as error:
            name = ApiKey(route.api_key).name
            raise CloseConnection(f"{name} version {context.version} can't be read: {error}") from error
        del frame
        self._timings = route.timings_of(request)
        answer = None if route.gate is None else route.refusal(route.gate, context, request)
        if answer is None:
            answer = route.handle(context, request)
        del request
        if answer.__class__ is GeneratorType:
            yield from self.handled(answer)
        else:
            yield from self.answered(answer)

    def handled(self, steps: Generator[int, None, Any]) -> Job:
        """Go on with a handler's steps."""
        answer = yield from steps
        yield from self.answered(answer)

    # Called as the connection of a handler's own pending response.

    def on_response_ready(self) -> None:
        """The handler has its answer; see :class:`.ResponseQueue`."""
        inner, self._inner = self._inner, None
        if inner is None:
            # Abandoned, but a coroutine goes on to its end.
            return
        self._waited += self._context.services.clock.monotonic() - self._waits_since
        # A handler may go on in turns after its wait.
        answer: Any = inner.parts
        goes_on = answer.__class__ is GeneratorType
        work = self.handled(answer) if goes_on else self._encode(answer)
        self._context.services.turns.start(self._guarded(work), self._client)

    def close(self, reason: str | None) -> None:
        """See :class:`.ResponseQueue`."""
        self._complete(CloseConnection(reason))

    def answered(self, answer: Any) -> Job:
        """Go on with what a handler has returned."""
        if not isinstance(answer, PendingResponse):
            if not hasattr(answer, "__await__"):
                yield from self._encode(answer)
                return
            answer = self._responder.run(answer)
        self._inner = answer
        self._waits_since = self._context.services.clock.monotonic()
        answer.put(self)

    def _encode(self, response: Any) -> Job:
        if isinstance(response, BaseException):
            raise response
        responder, route, context = self._responder, self._route, self._context
        if context.services.quotas.enabled:
            responder.throttle(route, context, self._size, response)
        parts = None
        if response is not None:
            parts = yield from in_slices(response.encode_in_slices(context.version), route.api.coded)
            parts = responder.framed(route, context, parts)
        responder.count_rest(route, context)
        if self._timings is not None:
            # What it waited for its turn is the handler's time, as in Kafka.
            now = context.services.clock.monotonic()
            self._timings.add(self._waiting_since, self._since, now - self._waited, now)
        self._complete(parts)

    def _guarded(self, work: Job) -> Job:
        """End quietly once the client has gone; an error closes its connection."""
        try:
            if self._has_left():
                work.close()
                return
            context = self._context
            context.begin_work()
            unlooked = 0
            for done in work:
                context.end_work()
                unlooked += done
                if unlooked >= TURN:
                    unlooked = 0
                    self._has_left()
                if self._abandoned:
                    work.close()
                    return
                yield done
                context.begin_work()
            context.end_work()
        except CloseConnection as error:
            self._complete(error)
        except Exception as error:
            self._complete(self._responder.failed(self._route, self._context, error))

    def _has_left(self) -> bool:
        """Whether the client is gone, so that its request needn't be served."""
        if not self._abandoned and not self._route.api.is_carried_out:
            # Closing the connection abandons this.
            self._context.connection.has_left()
        return self._abandoned

    def _complete(self, answer: Parts | CloseConnection | None) -> None:
        if self._abandoned:
            return
        self._context.connection.end_long()
        self._pending.complete(answer)

    def _abandon(self) -> None:
        self._abandoned = True
        self._context.connection.end_long()
        inner, self._inner = self._inner, None
        if inner is not None and inner.abandon is not None:
            inner.abandon()
