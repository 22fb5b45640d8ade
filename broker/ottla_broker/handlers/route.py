"""Serves one version of one API."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ottla_broker.counters import RequestTimes, Timings
from ottla_broker.handlers import Served
from ottla_broker.handlers.authorization import DENIED, GATES, RULES, Authorizer, Gate
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.limits import quick_bytes
from ottla_broker.handlers.turns import CODED
from ottla_broker.network.service import Parts
from ottla_protocol.acls import CLUSTER_NAME
from ottla_protocol.header import response_header_is_flexible
from ottla_protocol.registry import request_class, response_class

Decode = Callable[[memoryview, int], tuple[Any, int]]
Handle = Callable[[RequestContext, Any], Any]


class Route:
    """Serves one version of one API; made on its first request.

    Attributes:
        coded: the work of one slice of its answers, if that is more than usual.
        spread: makes several parts of each field that a handler has built of several pieces, if it builds such.
        timings: how long its requests took, if that is wanted; ``follower_timings``: those of followers' fetches.
        throttles: how long clients that exceeded a quota had to wait.
    """

    __slots__ = (
        "api_key",
        "coded",
        "decode",
        "flexible",
        "follower_timings",
        "gate",
        "handle",
        "quick_bytes",
        "request_class",
        "rules",
        "spread",
        "throttles",
        "timings",
    )

    def __init__(self, served: Served, api_key: int, version: int, authorizer: Authorizer) -> None:
        module = import_module(f"ottla_broker.handlers.{served.module}")
        self.api_key = api_key
        self.request_class = request_class(api_key, version)
        self.decode: Decode = self.request_class.decoder(version)
        self.quick_bytes = quick_bytes(api_key)
        self.handle: Handle = module.handle
        self.rules = authorizer.checked(RULES[api_key])
        self.gate = GATES.get(api_key)
        self.flexible = response_header_is_flexible(api_key, version)
        self.coded: int = getattr(module, "CODED", CODED)
        self.spread: Callable[[Parts], Parts] | None = getattr(module, "spread", None)
        self.timings: RequestTimes | None = None
        self.follower_timings: RequestTimes | None = None
        self.throttles: Timings | None = None

    def timings_of(self, request: Any) -> RequestTimes | None:
        """Return where a request's time is counted."""
        followers = self.follower_timings
        if followers is not None and (request.replica_id >= 0 or request.replica_state.replica_id >= 0):
            return followers
        return self.timings

    def refusal(self, gate: Gate, context: RequestContext, request: Any) -> Any:
        """The response to a request that doesn't pass its gate; None: it does."""
        name = CLUSTER_NAME if gate.name_field is None else getattr(request, gate.name_field)
        if context.authorize(gate.resource, name):
            return None
        response: Any = response_class(self.api_key)()
        response.error_code = DENIED[gate.resource]
        return response
