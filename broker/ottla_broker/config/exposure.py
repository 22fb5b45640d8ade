"""Finds listeners that other machines reach without a login, which need the operator's consent.

``allow.anonymous.network`` gives it: ``true`` for all listeners, or their names, with ``metrics`` for
``metrics.listener`` and ``coordinator`` for ``coordinator.listener``. Kafka has no such rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from ottla_broker.config.listeners import Endpoint
from ottla_protocol.loopback import is_loopback
from ottla_protocol.prometheus import parse_address

KEY: Final = "allow.anonymous.network"
METRICS: Final = "METRICS"
"""The name of ``metrics.listener`` in the value of the key."""
COORDINATOR: Final = "COORDINATOR"
"""The name of ``coordinator.listener``."""


class Exposure(NamedTuple):
    """A listener that anyone who reaches it may use.

    Attributes:
        key: the configuration key that opens it.
        name: its name in ``allow.anonymous.network``.
        shown: the listener as people write it.
        advice: how to close it.
    """

    key: str
    name: str
    shown: str
    advice: str


def exposures(
    endpoints: Sequence[Endpoint],
    authenticates: Callable[[Endpoint], bool],
    metrics_listener: str,
    coordinator_listener: str = "",
) -> Iterator[Exposure]:
    """The listeners beyond loopback whose clients don't prove who they are, and those there that have no login."""
    for endpoint in endpoints:
        if not is_loopback(endpoint.host) and not authenticates(endpoint):
            advice = "give it SASL or client certificates, or bind it to 127.0.0.1"
            yield Exposure("listeners", endpoint.name, str(endpoint), advice)
    for key, name, listener in (
        ("metrics.listener", METRICS, metrics_listener),
        ("coordinator.listener", COORDINATOR, coordinator_listener),
    ):
        address = parse_address(listener)
        if address is not None and not is_loopback(address[0]):
            yield Exposure(key, name, listener, "bind it to 127.0.0.1")


def unknown_name(endpoints: Sequence[Endpoint], allowed: Sequence[str]) -> str | None:
    """Say which entry of ``allowed`` names no listener; None if there is none."""
    known = {"TRUE", METRICS, COORDINATOR, *(endpoint.name for endpoint in endpoints)}
    if len(allowed) == 1:
        known.add("FALSE")
    wrong = next((name for name in allowed if name.upper() not in known), None)
    return None if wrong is None else f"{wrong} is not true, metrics, coordinator or the name of a listener"


def is_allowed(found: Exposure, allowed: Sequence[str]) -> bool:
    names = [name.upper() for name in allowed]
    return "TRUE" in names or found.name in names


def refusal(found: Exposure) -> str:
    """Return what is wrong with a listener that isn't allowed, and what to do."""
    return (
        f"{found.shown} would be open to the network without a login; {found.advice}, or accept the risk with"
        f" {KEY}=true"
    )


def warning(found: Exposure) -> str:
    """The line in the log that says what is open."""
    return f"{found.key}: {found.shown} is open to the network without a login, as {KEY} allows"
