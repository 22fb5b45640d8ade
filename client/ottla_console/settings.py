"""The settings of `ottla console`, checked together."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla_client.errors import ConfigurationError
from ottla_protocol.loopback import is_loopback

if TYPE_CHECKING:
    from .oidc import OidcSettings

_OWN_TOKENS: Final = (
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_method",
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_id",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """Raises ConfigurationError for settings that contradict each other.

    Attributes:
        client: options for Admin and Consumer, without a user where people log in.
        timeout: seconds that the cluster may take to answer a call.
        names: hosts that a request may name, besides addresses and localhost.
        insecure: whether to serve other machines without TLS, or without a login.
        refresh: seconds between two looks at the cluster while a page is open.
        session_minutes: how long a session lasts without a request.
        audit_log: a file for changes; None writes them to standard error.
        registry: the URL of a schema registry.
        schemas: files with schemas, by topic; ``FILE#MESSAGE`` names a message of Protobuf.
        landing: folders with tables that landing jobs fill, or such tables.
        zookeeper: where groups coordinate that brokers can't list; None looks nowhere.
        oidc: the provider at which people log in; None lets them log in as users of the cluster.
    """

    client: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8080
    timeout: float = 30.0
    names: tuple[str, ...] = ()
    read_only: bool = False
    insecure: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    refresh: float = 5.0
    session_minutes: float = 60.0
    audit_log: str | None = None
    registry: str | None = None
    schemas: Mapping[str, str] = field(default_factory=dict)
    landing: tuple[str, ...] = ()
    zookeeper: str | None = None
    oidc: OidcSettings | None = None

    def __post_init__(self) -> None:
        if self.tls_key is not None and self.tls_cert is None:
            raise ConfigurationError("--tls-key needs --tls-cert")
        if self.oidc is not None:
            self._check_oidc()
        if self.zookeeper is not None and self.logs_in:
            raise ConfigurationError(
                "--zookeeper: ZooKeeper doesn't know what each person may see; leave it out where people log in"
            )
        if is_loopback(self.host) or self.insecure:
            return
        if self.tls_cert is None:
            raise ConfigurationError(
                f"--listen {self.host}: other machines could read passwords and records on the way; give --tls-cert,"
                " or take the risk with --insecure"
            )
        if not self.logs_in:
            raise ConfigurationError(
                f"--listen {self.host}: anyone who reaches the console would act as its own user; let people log in"
                " (-X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-512, without a user), or take the risk"
                " with --insecure"
            )

    def _check_oidc(self) -> None:
        protocol = str(self.client.get("security_protocol", ""))
        if not protocol.startswith("SASL_") or self.client.get("sasl_mechanism") != "OAUTHBEARER":
            raise ConfigurationError(
                "--oidc-issuer: each person's token goes to the cluster, which decides what they may do; give"
                " -X security.protocol=SASL_SSL -X sasl.mechanism=OAUTHBEARER"
            )
        own = next((name for name in _OWN_TOKENS if self.client.get(name)), None)
        if own is not None:
            raise ConfigurationError(f"--oidc-issuer: each person has a token of their own; leave out {own}")

    @property
    def logs_in(self) -> bool:
        """Whether each person logs in: the cluster wants a login, and the console has none of its own."""
        if self.oidc is not None:
            return True
        protocol = str(self.client.get("security_protocol", ""))
        has_own = self.client.get("sasl_plain_username") or self.client.get("sasl_mechanism") == "OAUTHBEARER"
        return protocol.startswith("SASL_") and not has_own

    @property
    def is_tls(self) -> bool:
        return self.tls_cert is not None


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
