"""The addresses of bootstrap servers as users write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla_client.errors import ConfigurationError

DEFAULT_PORT = 9092
AS_KEYWORDS: Final = 'give options as keyword arguments, such as bootstrap_servers="127.0.0.1:9092"'
_FORM = 'expected is "host:port", several separated by commas, IPv6 as "[::1]:9092"'


def parse_servers(servers: str | Sequence[str]) -> list[tuple[str, int]]:
    """Host and port of each bootstrap server; the default port is 9092. Raises ConfigurationError."""
    if isinstance(servers, Mapping):
        raise ConfigurationError(f"bootstrap_servers is a dict; {AS_KEYWORDS}")
    entries: Iterable[object] = servers.split(",") if isinstance(servers, str) else servers
    found = dict.fromkeys(_address(entry) for entry in entries if not isinstance(entry, str) or entry.strip())
    if not found:
        raise ConfigurationError(f"bootstrap_servers is empty; {_FORM}")
    return list(found)


def _address(entry: object) -> tuple[str, int]:
    if not isinstance(entry, str):
        raise ConfigurationError(f"bootstrap_servers has {entry!r}; {_FORM}")
    text = entry.strip().rpartition("://")[2]  # a listener's name before it, as in advertised.listeners
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
        right = bool(bracket) and (not rest or rest.startswith(":"))
    elif text.count(":") > 1:
        host, port, right = text, "", True  # IPv6 without brackets, so without a port
    else:
        host, _, port = text.partition(":")
        right = True
    number = int(port) if port.isascii() and port.isdigit() else DEFAULT_PORT if not port else -1
    if not right or not host or "/" in text or not 0 < number < 65536:
        raise ConfigurationError(f"bootstrap_servers has {entry!r}; {_FORM}")
    return host, number
