"""The options of every client, declared once: names, types, defaults and checks.

`ConnectionOptions` gives keyword arguments their types, for editors and mypy; `ConnectionSettings` holds their values.
Producer, Consumer and Admin extend both with their own options. The synchronous classes take the same options, and
`option_names` reads them from text for ``-X`` and for Spark.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self, TypedDict, TypeVar

from ottla_protocol.http_client import parse_url
from ottla_protocol.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN
from ottla_protocol.sasl.oauthbearer import check_extensions

from .errors import ConfigurationError
from .foreign_options import unknown_option

F = TypeVar("F", bound=Callable[..., None])

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

_TIMES: Final = (
    "request_timeout_ms",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "metadata_max_age_ms",
    "connections_max_idle_ms",
    "reconnect_backoff_ms",
    "reconnect_backoff_max_ms",
)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PASSWORD: Final = ("sasl_plain_username", "sasl_plain_password")
_ENDPOINT: Final = (
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_id",
    "sasl_oauthbearer_client_secret",
)
_OAUTH: Final = (
    "sasl_oauthbearer_method",
    *_ENDPOINT,
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_extensions",
    "sasl_oauth_token_provider",
    "https_ca_location",
)
_SASL: Final = ("sasl_mechanism", *_PASSWORD, *_OAUTH)
_TLS_FILES: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
_TLS_TEXTS: Final = (*_TLS_FILES, "ssl_password")


class ConnectionOptions(TypedDict, total=False):
    """The keyword arguments of `ConnectionSettings`."""

    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    connections_max_idle_ms: int
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: str | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_tokenauth: bool
    sasl_oauth_token_provider: Any
    sasl_oauthbearer_method: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_extensions: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    https_ca_location: str | None


# No repr, which would show passwords.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ConnectionSettings:
    """How a client reaches its cluster. Times in milliseconds; raises ConfigurationError for invalid values.

    :param client_id: the client's name in the brokers' logs and quotas.
    :param request_timeout_ms: how long a broker may take to answer.
    :param retry_backoff_ms: the pause before the first retry; it doubles up to ``retry_backoff_max_ms``.
    :param reconnect_backoff_ms: the same for connections, up to ``reconnect_backoff_max_ms``.
    :param metadata_max_age_ms: how often to refresh the metadata when nothing else causes a refresh.
    :param connections_max_idle_ms: how long a connection may stay unused before it is closed.
    :param security_protocol: "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL".
    :param ssl_context: the context for TLS. Without it one is made from the options below.
    :param ssl_cafile: a PEM file with trusted authorities; None trusts the system's.
    :param ssl_certfile: a PEM file with the client's certificate, and its key unless ``ssl_keyfile`` has it.
    :param ssl_password: decrypts the key.
    :param ssl_check_hostname: whether the broker's certificate must name its host.
    :param sasl_mechanism: "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512" or "OAUTHBEARER".
    :param sasl_plain_username: the user, for every mechanism but OAUTHBEARER.
    :param sasl_plain_password: the user's password.
    :param sasl_tokenauth: whether user and password are a delegation token's id and HMAC, for SCRAM.
    :param sasl_oauth_token_provider: gets tokens for OAUTHBEARER: a function that returns one, or an object with
        ``token()`` and perhaps ``extensions()``. Without it the client asks ``sasl_oauthbearer_token_endpoint_url``.
    :param sasl_oauthbearer_method: "oidc" for a token endpoint, or "default" for a provider; it only is a check.
    :param sasl_oauthbearer_client_id: the client's name at the token endpoint.
    :param sasl_oauthbearer_client_secret: its secret.
    :param sasl_oauthbearer_scope: the scopes to ask for, with spaces between them.
    :param sasl_oauthbearer_extensions: SASL extensions: "name=value,name=value".
    :param sasl_oauthbearer_token_endpoint_url: an ``https:`` or ``http:`` URL, or the ``file:`` URL of a token's file.
    :param https_ca_location: a PEM file with the token endpoint's authorities; None trusts the system's.
    """

    client_id: str = "ottla"
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    connections_max_idle_ms: int = 540_000
    security_protocol: str = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = None
    ssl_check_hostname: bool = True
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = None
    sasl_tokenauth: bool = False
    sasl_oauth_token_provider: Any = None
    sasl_oauthbearer_method: str | None = None
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: str | None = None
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_extensions: str | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None
    https_ca_location: str | None = None

    def __post_init__(self) -> None:
        for name in _TIMES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ConfigurationError(f"{name} is {value!r}; a number of milliseconds above 0 is needed")
        if not isinstance(self.client_id, str):
            raise ConfigurationError(f"client_id is {self.client_id!r}; a text is needed")
        if self.security_protocol not in _PROTOCOLS:
            raise ConfigurationError(
                f"security_protocol is {self.security_protocol!r}; supported are {', '.join(_PROTOCOLS)}"
            )
        self._check_tls()
        self._check_sasl()

    def _check_sasl(self) -> None:
        protocol = self.security_protocol
        given = [name for name in _SASL if getattr(self, name) is not None]
        if not protocol.startswith("SASL_"):
            if given:
                raise ConfigurationError(
                    f"{given[0]} is given, which needs security_protocol='SASL_SSL' or 'SASL_PLAINTEXT'"
                )
            return
        self._require("security_protocol", protocol, ("sasl_mechanism",))
        if self.sasl_mechanism not in MECHANISMS:
            raise ConfigurationError(
                f"sasl_mechanism is {self.sasl_mechanism!r}; supported are {', '.join(MECHANISMS)}"
            )
        others = _PASSWORD if self.sasl_mechanism == OAUTHBEARER else _OAUTH
        if wrong := [name for name in given if name in others]:
            raise ConfigurationError(f"{wrong[0]} is given, which is not for {self.sasl_mechanism}")
        if self.sasl_tokenauth and self.sasl_mechanism in (PLAIN, OAUTHBEARER):
            raise ConfigurationError("sasl_tokenauth is given, which needs SCRAM-SHA-256 or SCRAM-SHA-512")
        if self.sasl_mechanism == OAUTHBEARER:
            self._check_oauth()
        else:
            self._require("sasl_mechanism", self.sasl_mechanism, _PASSWORD)

    def _require(self, name: str, value: str | None, needed: tuple[str, ...]) -> None:
        missing = [each for each in needed if not getattr(self, each)]
        if missing:
            raise ConfigurationError(f"{name} is {value!r}, which needs {', '.join(missing)}")

    def _check_oauth(self) -> None:
        url = self.sasl_oauthbearer_token_endpoint_url
        method = self.sasl_oauthbearer_method
        if method not in (None, "oidc", "default"):
            raise ConfigurationError(f"sasl_oauthbearer_method is {method!r}; supported are oidc, default")
        try:
            check_extensions(self.oauth_extensions())
        except ValueError as error:
            raise ConfigurationError(f"sasl_oauthbearer_extensions: {error}") from None
        if self.sasl_oauth_token_provider is not None:
            if url is not None or method == "oidc":
                raise ConfigurationError(
                    "sasl_oauth_token_provider and a token endpoint are both given; remove one"
                )
            if not callable(getattr(self.sasl_oauth_token_provider, "token", self.sasl_oauth_token_provider)):
                raise ConfigurationError(
                    "sasl_oauth_token_provider must be a function, or an object with token()"
                )
            return
        if not url or not url.startswith("file:"):
            self._require("sasl_mechanism", self.sasl_mechanism, _ENDPOINT)
        try:
            if url and not url.startswith("file:"):
                parse_url(url)
        except ValueError as error:
            raise ConfigurationError(f"sasl_oauthbearer_token_endpoint_url {error}") from None

    def _check_tls(self) -> None:
        tls = self.security_protocol in ("SSL", "SASL_SSL")
        given = [name for name in _TLS_TEXTS if getattr(self, name) is not None]
        if not self.ssl_check_hostname:
            given.append("ssl_check_hostname")
        if not tls and self.ssl_context is not None:
            raise ConfigurationError(
                "ssl_context is given, which needs security_protocol='SSL' or 'SASL_SSL'"
            )
        if not tls and given:
            raise ConfigurationError(
                f"{given[0]} is given, which needs security_protocol='SSL' or 'SASL_SSL'"
            )
        if self.ssl_context is not None and given:
            raise ConfigurationError(f"{given[0]} and ssl_context are both given; set it in the context")
        if self.ssl_certfile is None and (self.ssl_keyfile or self.ssl_password):
            raise ConfigurationError("ssl_keyfile and ssl_password need ssl_certfile")

    @classmethod
    def of(cls, options: Mapping[str, Any], client: str) -> Self:
        """The settings of the class ``client``. Raises TypeError for an unknown option, ConfigurationError."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                also_known = ["bootstrap_servers", *known]
                raise TypeError(f"{client} has no option {name}{unknown_option(name, also_known)}")
        return cls(**options)

    @property
    def request_timeout(self) -> float:
        """``request_timeout_ms`` in seconds."""
        return self.request_timeout_ms / 1000

    def oauth_extensions(self) -> dict[str, str]:
        """The SASL extensions of ``sasl_oauthbearer_extensions``."""
        text = self.sasl_oauthbearer_extensions or ""
        parts = (part.partition("=") for part in text.split(",") if part.strip())
        return {name.strip(): value.strip() for name, _, value in parts}

    def tls_context(self) -> ssl.SSLContext | None:
        """The context to connect with, None for plain text. Reads the files, so it raises ConfigurationError."""
        if self.security_protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
            return None
        if self.ssl_context is not None:
            return self.ssl_context
        try:
            context = ssl.create_default_context(cafile=self.ssl_cafile)
            if self.ssl_certfile is not None:
                context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, self.ssl_password)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(file for name in _TLS_FILES if (file := getattr(self, name)))
            of_openssl = (
                (error.reason or "OpenSSL can't use them") if isinstance(error, ssl.SSLError) else None
            )
            raise ConfigurationError(
                f"{files}: {of_openssl or error.strerror or error}; PEM files are needed: certificates in ssl_cafile"
                " and ssl_certfile, the key in ssl_keyfile or after the certificate in ssl_certfile"
            ) from None
        if not self.ssl_check_hostname:
            context.check_hostname = False
        return context


def accepts(settings: type[ConnectionSettings]) -> Callable[[F], F]:
    """Show a constructor's ``**options`` one by one, with their defaults, in ``help`` and ``inspect.signature``."""

    def decorate(constructor: F) -> F:
        signature = inspect.signature(constructor)
        shown = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        shown += [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
            )
            for field in fields(settings)
        ]
        constructor.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        return constructor

    return decorate
