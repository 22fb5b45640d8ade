"""Handlers called directly: their context, with only the services that a test has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from math import inf
from typing import Any, cast

from ottla_broker.controller.client_quotas import QuotaAdmin
from ottla_broker.controller.features import FeatureAdmin
from ottla_broker.fetch.conversions import Conversions
from ottla_broker.handlers.index import INDEX
from ottla_broker.log.heard_connections import ConnectionAge
from ottla_broker.metadata.client_quotas import ClientQuotas
from ottla_broker.network.service import ANONYMOUS, Principal
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Running
from ottla_broker.requests.services import Services
from ottla_broker.requests.turns import Turns
from ottla_broker.security.authorization import Authorizer

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


def begun(handler: Any, context: RequestContext, request: Any) -> Running[Any]:
    """Have a module handle a request, as far as it comes without waiting."""
    return Running(handler.handle(context, request)).start()


def handled(handler: Any, context: RequestContext, request: Any) -> Any:
    """What a module answers; while it waits, the :class:`Running` that gives the answer."""
    running = begun(handler, context, request)
    if not running.given:
        return running
    try:
        return running.value()
    finally:
        del running  # the traceback of an error has this frame


async def answered(handler: Any, context: RequestContext, request: Any) -> Any:
    """What a module answers in the end."""
    answer = awaited(handled(handler, context, request))
    return await answer if isinstance(answer, asyncio.Future) else answer


def when_answered(running: Running[Any], callback: Callable[[Any], object]) -> None:
    """Call ``callback`` with a handler's answer, or the exception in its place: at once, if it is there."""
    if running.given:
        callback(running.outcome)
    else:
        running.then = lambda: callback(running.outcome)


def awaited(answer: Any) -> Any:
    """What :func:`handled` has returned; of a handler that waits, a future of its answer."""
    if not isinstance(answer, Running):
        return answer
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def ended(response: Any) -> None:
        if isinstance(response, BaseException):
            future.set_exception(response)
        else:
            future.set_result(response)

    when_answered(answer, ended)
    return future
