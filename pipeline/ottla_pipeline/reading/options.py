"""Kafka's names for client settings, as options of this package's client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from .errors import ReadError

if TYPE_CHECKING:
    import ssl

_TIMES: Final = (
    "request.timeout.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "metadata.max.age.ms",
    "connections.max.idle.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
)
DEFAULT_API_TIMEOUT: Final = "default.api.timeout.ms"


def cluster_options(client: Mapping[str, str]) -> dict[str, Any]:
    """The options that connect to a cluster, for ``Cluster`` and ``Admin``: names, times and TLS.

    Other settings are passed over. TLS wants PEM files: ``ssl.truststore.location`` (or ``ssl.ca.location``),
    ``ssl.keystore.location`` with certificates and key (or ``ssl.certificate.location`` and ``ssl.key.location``),
    ``ssl.key.password``, and an empty ``ssl.endpoint.identification.algorithm`` for hosts by any name.
    Raises ReadError.
    """
    options: dict[str, Any] = {}
    if client.get("client.id"):
        options["client_id"] = client["client.id"]
    for name in _TIMES:
        if name in client:
            options[name.replace(".", "_")] = number(client, name, 0)
    protocol = client.get("security.protocol", "PLAINTEXT").upper()
    options["security_protocol"] = protocol
    if protocol == "SSL":
        options["ssl_context"] = _ssl_context(client)
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


def _ssl_context(client: Mapping[str, str]) -> ssl.SSLContext:
    import ssl

    authorities = client.get("ssl.truststore.location") or client.get("ssl.ca.location")
    certificate = client.get("ssl.keystore.location") or client.get("ssl.certificate.location")
    key = client.get("ssl.key.location")
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        kind = client.get(name, "PEM")
        if kind.upper() != "PEM":
            raise ReadError(f"kafka.{name} is {kind}; give certificates as PEM files, and PEM here")
    try:
        context = ssl.create_default_context(cafile=authorities)
        if certificate:
            context.load_cert_chain(certificate, key, client.get("ssl.key.password"))
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(each for each in (authorities, certificate, key) if each)
        reason = getattr(error, "reason", None) or error.strerror or error
        raise ReadError(f"{files}: {reason}; PEM files are needed for kafka.security.protocol=SSL") from None
    if client.get("ssl.endpoint.identification.algorithm", "https") == "":
        context.check_hostname = False
    return context
