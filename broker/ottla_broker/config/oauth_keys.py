"""Keys of OAUTHBEARER (KIP-255, KIP-768), each of which can be set for one listener."""

from __future__ import annotations

from typing import Final

from ottla_broker.config.model import (
    CLASS,
    INT,
    LIST,
    Key,
    Validator,
    at_least,
    between,
    integer,
    long,
    optional,
    optional_string,
    string,
)

SIGNED_TOKENS: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
UNSECURED_TOKENS: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
    ".OAuthBearerUnsecuredValidatorCallbackHandler"
)
CLIENT_CREDENTIALS: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def _old_name(name: str) -> str:
    """The class before Kafka 3.4 moved it."""
    return name.replace(".oauthbearer.", ".oauthbearer.secured.")


VALIDATORS: Final = {
    SIGNED_TOKENS: SIGNED_TOKENS,
    _old_name(SIGNED_TOKENS): SIGNED_TOKENS,
    UNSECURED_TOKENS: UNSECURED_TOKENS,
}
"""The classes that check tokens, by the names that may be written."""
_LOGINS: Final = (CLIENT_CREDENTIALS, _old_name(CLIENT_CREDENTIALS))


def _is_url(text: str) -> str | None:
    from ottla_protocol.http_client import parse_url

    if text.startswith("file:"):
        return None
    try:
        parse_url(text)
    except ValueError as error:
        return str(error)
    return None


_URL: Final = Validator(_is_url, "an https:, http: or file: URL")


def _one_of_classes(*names: str) -> Validator:
    return Validator(lambda name: None if name in names else "is a Java class", " or ".join(names))


class OAuthKeys:
    """Keys of the tokens that a listener accepts, and of this broker's own."""

    sasl_server_callback_handler_class: Key[str | None] = Key(
        CLASS,
        None,
        "What checks a listener's tokens of OAUTHBEARER.",
        _one_of_classes(*VALIDATORS),
        note=f"The default is {SIGNED_TOKENS}, which checks signatures. Kafka's default is"
        f" {UNSECURED_TOKENS}, which accepts tokens without signatures: for trials only.",
    )
    sasl_login_callback_handler_class: Key[str | None] = Key(
        CLASS,
        None,
        "How this broker gets tokens for connections to other brokers by OAUTHBEARER.",
        _one_of_classes(*_LOGINS),
        note=f"The only value is {CLIENT_CREDENTIALS}, which is also the default.",
    )
    sasl_oauthbearer_jwks_endpoint_url = optional_string(
        "Where an OAuth provider publishes its keys (a JWKS): an https:, http: or file: URL.",
        _URL,
        note="Needs the package PyJWT: pip install 'ottla[security]'.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = long(
        3_600_000, "Time between two reads of an OAuth provider's keys.", at_least(1)
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = long(
        100, "The first pause before a failed read of the keys is retried; it doubles each time.", at_least(1)
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = long(
        10_000, "The longest pause before a failed read of the keys is retried.", at_least(1)
    )
    sasl_oauthbearer_expected_audience: Key[tuple[str, ...] | None] = Key(
        LIST,
        None,
        "The audiences of which a token must name one (aud).",
        note="Without it, tokens that name an audience are refused, as in Kafka.",
    )
    sasl_oauthbearer_expected_issuer = optional_string("The issuer that a token must name (iss).")
    sasl_oauthbearer_clock_skew_seconds = integer(
        30, "The accepted difference to an OAuth provider's clock.", between(0, 86_400)
    )
    sasl_oauthbearer_scope_claim_name = string("scope", "The claim that holds a token's scopes.")
    sasl_oauthbearer_sub_claim_name = string("sub", "The claim that holds a token's user.")
    sasl_oauthbearer_token_endpoint_url = optional_string(
        "Where this broker gets its own tokens: an https: or http: URL, or the file: URL of a file with a token.",
        _URL,
    )
    sasl_login_connect_timeout_ms = optional(
        INT, "The timeout for connecting to an OAuth provider.", at_least(1), note="Unset means 10 seconds."
    )
    sasl_login_read_timeout_ms = optional(
        INT, "The timeout for an OAuth provider's response.", at_least(1), note="Unset means 10 seconds."
    )
    sasl_login_retry_backoff_ms = long(
        100,
        "The first pause before a failed request for a token is retried; it doubles each time.",
        at_least(1),
    )
    sasl_login_retry_backoff_max_ms = long(
        10_000, "The longest pause before a failed request for a token is retried.", at_least(1)
    )
