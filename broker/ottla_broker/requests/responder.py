"""From what a handler returns to the response: quotas, encoding, its header, and errors of the handler."""

from __future__ import annotations

from struct import Struct
from typing import Any

from ottla_broker.events import get_logger
from ottla_broker.metadata.client_quotas import QuotaKind
from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.network.service import Parts
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_slices
from ottla_broker.requests.route import Route
from ottla_broker.requests.services import Services
from ottla_protocol.api_keys import api_name

_log = get_logger()


# size: int32, correlation id: int32; in flexible versions also an empty set of tagged fields: uint8 0.
pack_header = Struct(">ii").pack
_pack_flexible_header = Struct(">iib").pack


class Responder:
    """Owned by the loop thread."""

    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        self._quotas = services.quotas

    def throttle(self, route: Route, context: RequestContext, size: int, response: Any) -> None:
        """Count what the request has cost, and mute the connection of a client that exceeds a quota (KIP-124, KIP-219).

        The response goes out at once and says for how long.
        """
        if context.exempt or route.is_between_brokers:
            return
        quotas, connection = self._quotas, context.connection
        user, client_id = connection.principal.name, context.client_id or ""
        context.end_work()
        now_ms = int(self._clock.monotonic() * 1000)
        wait_ms = context.throttle_ms
        if route.api.quota is QuotaKind.PRODUCE:
            wait_ms = max(wait_ms, quotas.record(QuotaKind.PRODUCE, user, client_id, size, now_ms))
        elif route.api.quota is QuotaKind.FETCH:
            fetched = sum(len(p.records or b"") for topic in response.responses for p in topic.partitions)
            wait_ms = max(wait_ms, quotas.record(QuotaKind.FETCH, user, client_id, fetched, now_ms))
        if response is not None:
            busy = context.busy_seconds * 100
            wait_ms = max(wait_ms, quotas.record(QuotaKind.REQUEST, user, client_id, busy, now_ms))
            context.busy_seconds = 0.0
            # What follows: the encoding.
            context.begin_work()
        if wait_ms:
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = wait_ms
            connection.throttle(wait_ms / 1000)
            if route.throttles is not None:
                route.throttles.add(wait_ms / 1000)

    def count_rest(self, route: Route, context: RequestContext) -> None:
        """Count the work since :meth:`throttle`, for which later requests have to wait, as in Kafka."""
        context.end_work()
        busy, context.busy_seconds = context.busy_seconds * 100, 0.0
        if busy and not (context.exempt or route.is_between_brokers):
            user, client_id = context.connection.principal.name, context.client_id or ""
            now_ms = int(self._clock.monotonic() * 1000)
            self._quotas.record(QuotaKind.REQUEST, user, client_id, busy, now_ms)

    async def encode(self, route: Route, context: RequestContext, size: int, response: Any) -> Parts | None:
        """The parts of a response; None without one. ``size``: the request's bytes, which count for quotas."""
        measured = self._quotas.enabled
        if measured:
            self.throttle(route, context, size, response)
        parts = None
        if response is not None:
            if context.in_turns:
                parts = await in_slices(response.encode_in_slices(context.version), route.api.coded)
            else:
                parts = response.encode_parts(context.version)
            parts = self.framed(route, context, parts)
        if measured:
            self.count_rest(route, context)
        return parts

    def framed(self, route: Route, context: RequestContext, parts: Parts) -> Parts:
        """Put the header before a response's parts. Only fetches have several, such as slices of files."""
        if (spread := route.spread) is not None:
            parts = spread(parts)
        size = sum(map(len, parts))  # type: ignore[arg-type]
        if route.flexible:
            header = _pack_flexible_header(size + 5, context.correlation_id, 0)
        else:
            header = pack_header(size + 4, context.correlation_id)
        # In its place: a second part would cost a small answer more than its bytes.
        parts[0][:0] = header  # type: ignore[index]
        return parts

    def failed(self, route: Route, context: RequestContext, error: BaseException) -> CloseConnection:
        """Log a defect of this broker; only this client's connection is closed."""
        name = api_name(route.api_key)
        _log.error(
            "request failed",
            api=name,
            version=context.version,
            connection=context.connection.id,
            client_id=context.client_id,
            exc_info=error,
        )
        return CloseConnection(f"{name} version {context.version} failed in the broker")
