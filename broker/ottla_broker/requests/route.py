"""Serves one version of one API."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from ottla_broker.counters import RequestTimes, Timings
from ottla_broker.requests.api import Api, Served
from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorization import DENIED, Authorizer
from ottla_protocol.acls import CLUSTER_NAME, AclResource
from ottla_protocol.header import response_header_is_flexible
from ottla_protocol.registry import request_class, response_class

Decode = Callable[[memoryview, int], tuple[Any, int]]
Handle = Callable[[RequestContext, Any], Any]

NAME_FIELDS: Final = {AclResource.GROUP: "group_id", AclResource.TRANSACTIONAL_ID: "transactional_id"}
"""The field of a request that names what its gate asks for; the cluster needs none."""


class Route:
    """Serves one version of one API; made on its first request.

    Attributes:
        api: its facts, of which some are attributes here too.
        timings: how long its requests took, if that is wanted; ``follower_timings``: those of followers' fetches.
        throttles: how long clients that exceeded a quota had to wait.
    """

    __slots__ = (
        "api",
        "api_key",
        "decode",
        "flexible",
        "follower_timings",
        "gate",
        "handle",
        "is_between_brokers",
        "quick_bytes",
        "request_class",
        "rules",
        "spread",
        "throttles",
        "timings",
    )

    def __init__(self, served: Served, api_key: int, version: int, authorizer: Authorizer) -> None:
        module = import_module(f"ottla_broker.handlers.{served.module}")
        self.api: Api = module.API
        self.api_key = api_key
        self.request_class = request_class(api_key, version)
        self.decode: Decode = self.request_class.decoder(version)
        self.quick_bytes = self.api.quick_bytes
        self.handle: Handle = module.handle
        self.rules = authorizer.checked(self.api.needs)
        self.gate = self.api.gate
        self.is_between_brokers = self.api.senders.startswith("brokers")
        self.flexible = response_header_is_flexible(api_key, version)
        self.spread = self.api.spread
        self.timings: RequestTimes | None = None
        self.follower_timings: RequestTimes | None = None
        self.throttles: Timings | None = None

    def timings_of(self, request: Any) -> RequestTimes | None:
        """Return where a request's time is counted."""
        followers = self.follower_timings
        if followers is not None and (request.replica_id >= 0 or request.replica_state.replica_id >= 0):
            return followers
        return self.timings

    def refusal(self, gate: AclResource, context: RequestContext, request: Any) -> Any:
        """The response to a request that doesn't pass its gate; None: it does."""
        field = NAME_FIELDS.get(gate)
        if context.authorize(gate, CLUSTER_NAME if field is None else getattr(request, field)):
            return None
        response: Any = response_class(self.api_key)()
        response.error_code = DENIED[gate]
        return response
