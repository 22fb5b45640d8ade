"""Converts Kafka's names of client settings to arguments of ``ottla_client``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla_client.errors import ConfigurationError
from ottla_client.lowlevel import ConnectionSettings, kafka_names, read_options

from .errors import ReadError

CONNECTION_NAMES: Final = frozenset(kafka_names(ConnectionSettings))
"""Kafka's names of the settings for connecting to a cluster."""
DEFAULT_API_TIMEOUT: Final = "default.api.timeout.ms"


def cluster_options(client: Mapping[str, str]) -> dict[str, Any]:
    """Arguments for connecting to a cluster, for all classes of the client; ignores other settings.

    Raises ReadError.
    """
    given = {name: text for name, text in client.items() if name in CONNECTION_NAMES}
    if not given.get("client.id"):
        given.pop("client.id", None)
    if "security.protocol" in given:
        given["security.protocol"] = given["security.protocol"].upper()
    try:
        options = read_options(given, ConnectionSettings, shown=lambda name: f"kafka.{name}")
        ConnectionSettings(**options).tls_context()
    except ConfigurationError as error:
        raise ReadError(str(error)) from None
    return options


def number(client: Mapping[str, str], name: str, default: int) -> int:
    """A setting that is a whole number. Raises ReadError."""
    text = client.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ReadError(f"kafka.{name} is {text!r}; a whole number is needed") from None
