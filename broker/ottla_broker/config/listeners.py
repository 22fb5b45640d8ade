"""Parses ``listeners``, ``advertised.listeners`` and the map of their security protocols."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from ottla_broker.config.security_keys import PROTOCOLS

# NAME://HOST:PORT, with an IPv6 address in brackets, as in Kafka's EndPoint.
_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")


class ListenerError(ValueError):
    """A listener is invalid; ``key`` is the configuration key at fault."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener: the address to bind, and the one that clients connect to.

    An empty ``host`` stands for all addresses. With ``port`` 0 the system chooses a port. ``advertised_port`` is then
    0 too unless it was given, and :meth:`bound` fills in both.
    """

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int

    def bound(self, port: int) -> Endpoint:
        """Return the endpoint with the port that it got."""
        return replace(self, port=port, advertised_port=self.advertised_port or port)

    def __str__(self) -> str:
        return f"{self.name}://{_bracketed(self.host)}:{self.port}"

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def advertised(self) -> str:
        """The form in a broker's registration."""
        return f"{self.name}://{_bracketed(self.advertised_host)}:{self.advertised_port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_endpoints(
    listeners: str,
    advertised: str | None,
    protocol_map: str,
    inter_broker: str | None,
    hostname: Callable[[], str],
) -> tuple[Endpoint, ...]:
    """Parse all listeners and the addresses that they advertise.

    ``hostname`` returns this machine's name, which a listener on all addresses advertises.

    Raises ListenerError: a key is invalid.
    """
    protocols = _parse_map(protocol_map)
    bound = _parse_list("listeners", listeners, protocols)
    if not bound:
        raise ListenerError("listeners", "is empty; write at least one PLAINTEXT://HOST:PORT")
    ports = [port for _, _, port in bound.values() if port]
    if len(ports) != len(set(ports)) and len({(host, port) for _, host, port in bound.values()}) != len(
        bound
    ):
        raise ListenerError("listeners", "two listeners have the same host and port")
    given = {} if advertised is None else _parse_list("advertised.listeners", advertised, protocols)
    if advertised is not None and not given:
        raise ListenerError("advertised.listeners", "names no listener; name one, or remove the key")
    for name in given:
        if name not in bound:
            raise ListenerError(
                "advertised.listeners", f"{name} is not among the listeners {', '.join(bound)}"
            )
    endpoints = []
    for name, (protocol, host, port) in bound.items():
        _, shown_host, shown_port = given.get(name, (protocol, host, port))
        if shown_host == "0.0.0.0" or (name in given and shown_host == "::"):
            raise ListenerError(
                "advertised.listeners" if name in given else "listeners",
                f"clients can't connect to {shown_host}; give {name} a routable address in"
                " advertised.listeners",
            )
        if shown_host in ("", "::"):
            shown_host = hostname()
        endpoints.append(
            Endpoint(name, protocol, "" if host == "0.0.0.0" else host, port, shown_host, shown_port)
        )
    if inter_broker is not None and inter_broker.upper() not in bound:
        raise ListenerError(
            "inter.broker.listener.name", f"{inter_broker} is not among the listeners {', '.join(bound)}"
        )
    return tuple(endpoints)


def _parse_map(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = part.rpartition(":")
        if not colon or not name or protocol not in PROTOCOLS:
            raise ListenerError(
                "listener.security.protocol.map",
                f"{part} is not NAME:PROTOCOL with a protocol among {', '.join(PROTOCOLS)}",
            )
        if name.upper() in found:
            raise ListenerError("listener.security.protocol.map", f"{name} occurs twice")
        found[name.upper()] = protocol
    return found


def _parse_list(key: str, text: str, protocols: dict[str, str]) -> dict[str, tuple[str, str, int]]:
    """Name → (protocol, host, port), in order."""
    found: dict[str, tuple[str, str, int]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _ENDPOINT.fullmatch(part)
        if match is None:
            raise ListenerError(key, f"{part} is not of the form NAME://HOST:PORT")
        name, host, port = match[1].upper(), match[2], int(match[3])
        if not 0 <= port <= 65535:
            raise ListenerError(key, f"{part} has no port between 0 and 65535")
        if name in found:
            raise ListenerError(key, f"{name} occurs twice; each listener needs its own name")
        protocol = protocols.get(name)
        if protocol is None:
            raise ListenerError(
                key,
                f"{name} has no security protocol; add {name}:PLAINTEXT to listener.security.protocol.map",
            )
        found[name] = protocol, host, port
    return found
