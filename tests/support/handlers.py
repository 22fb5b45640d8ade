"""Handlers called directly: their context, with only the services that a test has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from importlib import import_module
from math import inf
from typing import Any, cast

from ottla_broker.controller.client_quotas import QuotaAdmin
from ottla_broker.controller.features import FeatureAdmin
from ottla_broker.handlers.api import Api
from ottla_broker.handlers.authorization import Authorizer
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.conversions import Conversions
from ottla_broker.handlers.index import INDEX
from ottla_broker.handlers.services import Services
from ottla_broker.handlers.turns import Turns
from ottla_broker.log.heard_connections import ConnectionAge
from ottla_broker.metadata.client_quotas import ClientQuotas
from ottla_broker.network.pending_response import PendingResponse
from ottla_broker.network.service import ANONYMOUS, Principal
from ottla_broker.tasks import run_whole

INTER_BROKER = "INTERNAL"


@dataclass
class Client:
    """A client's connection, as handlers see it."""

    client_id: str | None = "test"
    id: str = "connection-1"
    client_host: str = "127.0.0.1"
    listener: str = "PLAINTEXT"
    principal: Principal = ANONYMOUS
    age: ConnectionAge = field(default_factory=lambda: ConnectionAge(inf))
    waiting_since: float = 0.0
    authenticated: bool = True
    session: Any = None
    busy: bool = False
    on_close: dict[object, Callable[[], None]] = field(default_factory=dict)

    def stop_reading(self) -> None: ...

    def close(self, reason: str | None) -> None: ...

    def begin_long(self) -> None:
        return

    def end_long(self) -> None:
        return

    def has_left(self) -> bool:
        return False

    def throttle(self, seconds: float) -> None:
        raise AssertionError(f"throttled for {seconds} s")


def services(**given: Any) -> Services:
    """The services that are given; the others are None, or empty."""
    every: dict[str, Any] = dict.fromkeys(Services.__dataclass_fields__)
    quotas, nothing = ClientQuotas(), cast("Any", None)
    silent: dict[str, Any] = {
        "authorizer": Authorizer(INTER_BROKER),
        "conversions": Conversions(),
        "coordinated": lambda: None,
        "features": FeatureAdmin(nothing, nothing, alone=True),
        "quotas": quotas,
        "quota_admin": QuotaAdmin(nothing, nothing, quotas),
        "turns": Turns(),
        "zookeeper_groups": lambda: None,
    }
    for name in ("groups", "transactions", "shares"):
        made = given.pop(name, None)
        silent[f"find_{name}"] = lambda made=made: made
    return Services(**{**every, **silent, **given})


def module_of(key: int) -> Any:
    """The module that handles an API."""
    return import_module(f"ottla_broker.handlers.{INDEX[key].module}")


def api_of(key: int) -> Api:
    """What the module says of its API."""
    api: Api = module_of(key).API
    return api


def request_context(
    given: Services, version: int, api_key: int, listener: str = "PLAINTEXT", client_id: str = "test"
) -> RequestContext:
    client = Client(client_id, listener=listener)
    return RequestContext(given, api_of(api_key).needs, version, client_id, client, 1)


class _Queue:
    """A connection that waits for one response, which isn't encoded."""

    def __init__(self, pending: PendingResponse, callback: Callable[[Any], object]) -> None:
        self._pending = pending
        self._callback = callback

    def on_response_ready(self) -> None:
        self._callback(self._pending.parts)

    def close(self, reason: str | None) -> None:
        raise AssertionError(reason)


def when_answered(pending: PendingResponse, callback: Callable[[Any], object]) -> None:
    """Call ``callback`` with a handler's response: at once, if it is complete."""
    pending.put(_Queue(pending, callback))


def awaited(answer: Any) -> Any:
    """What a handler has returned; of a pending response, a future of what it is completed with."""
    if not isinstance(answer, PendingResponse):
        return answer
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def ended(response: Any) -> None:
        if isinstance(response, BaseException):
            future.set_exception(response)
        else:
            future.set_result(response)

    when_answered(answer, ended)
    return future


def handled(handler: Any, context: RequestContext, request: Any) -> Any:
    """What a handler's module returns; one that takes turns runs as a whole."""
    answer = handler.handle(context, request)
    return run_whole(answer) if isinstance(answer, Generator) else answer
