"""Keys of TLS (key stores, trust stores, client certificates, versions, ciphers) and of SASL.

Each of them can be set for one listener: ``listener.name.<name>.ssl.keystore.location``.
"""

from __future__ import annotations

from typing import Final

from ottla_broker.config.model import (
    LIST,
    PASSWORD,
    PER_BROKER,
    STRING,
    Key,
    Validator,
    between,
    each_of,
    integer,
    long,
    one_of,
    string,
)
from ottla_protocol.sasl.mechanism import MECHANISMS

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The security protocols of listeners."""

_STORE_TYPES: Final = Validator(
    lambda kind: (
        None if kind.upper() in ("JKS", "PEM", "PKCS12") else "String must be one of: PEM, PKCS12, or JKS"
    ),
    "PEM, PKCS12, or JKS",
)


def _secret(meaning: str) -> Key[str | None]:
    return Key(PASSWORD, None, meaning, None, PER_BROKER)


def _path(meaning: str, note: str = "") -> Key[str | None]:
    return Key(STRING, None, meaning, None, PER_BROKER, note=note)


def _login(text: str | None) -> str | None:
    from ottla_protocol.sasl.jaas import parse_login

    try:
        if text is not None:
            parse_login(text)
    except ValueError as error:
        return str(error)
    return None


def _rules(text: str) -> str | None:
    from ottla_broker.config.principal_mapping import parse_rules

    try:
        parse_rules(text)
    except ValueError as error:
        return str(error)
    return None


class TlsKeys:
    """TLS of listeners, and of connections to other brokers."""

    ssl_keystore_type = string(
        "JKS",
        "The key store's type: PEM or PKCS12.",
        _STORE_TYPES,
        PER_BROKER,
        note="With the default, the file's content decides between PEM and PKCS12. Files in Java's own format"
        " JKS are refused.",
    )
    ssl_keystore_location = _path(
        "The file with the private key and its certificates.",
        note="A PKCS12 file needs the package cryptography: pip install 'ottla[security]'.",
    )
    ssl_keystore_password = _secret("The password of a PKCS12 key store.")
    ssl_keystore_key = _secret("The private key in PEM, instead of a file.")
    ssl_keystore_certificate_chain = _secret(
        "The certificates for ssl.keystore.key, in PEM, the key's own first."
    )
    ssl_key_password = _secret("The password of an encrypted private key in PEM.")
    ssl_truststore_type = string(
        "JKS",
        "The trust store's type: PEM or PKCS12.",
        _STORE_TYPES,
        PER_BROKER,
        note="With the default, the file's content decides between PEM and PKCS12.",
    )
    ssl_truststore_location = _path(
        "The file with the certificates of trusted authorities. The default is the system's."
    )
    ssl_truststore_password = _secret("The password of a PKCS12 trust store.")
    ssl_truststore_certificates = _secret(
        "The certificates of trusted authorities in PEM, instead of a file."
    )
    ssl_client_auth = string(
        "none",
        "Whether clients need a certificate: none, requested or required.",
        one_of("required", "requested", "none"),
    )
    ssl_principal_mapping_rules = string(
        "DEFAULT",
        "Rules that make a user name of a client certificate's distinguished name:"
        " RULE:pattern/replacement/[LU], or DEFAULT for the whole name, separated by commas.",
        Validator(_rules, "RULE:pattern/replacement/[LU], DEFAULT"),
    )
    ssl_enabled_protocols: Key[tuple[str, ...]] = Key(
        LIST, ("TLSv1.2", "TLSv1.3"), "The TLS versions.", each_of("TLSv1.2", "TLSv1.3")
    )
    ssl_cipher_suites: Key[tuple[str, ...]] = Key(
        LIST, (), "The cipher suites, by Java's or OpenSSL's names. The default is OpenSSL's choice."
    )
    ssl_endpoint_identification_algorithm = string(
        "https",
        "Check of a broker's host name against its certificate, in connections to other brokers: https, or empty"
        " for none.",
        Validator(
            lambda name: None if name.lower() in ("https", "") else "String must be https or empty",
            "https or empty",
        ),
    )


class SaslKeys:
    """SASL of listeners, and of connections to other brokers."""

    sasl_enabled_mechanisms: Key[tuple[str, ...]] = Key(
        LIST,
        ("GSSAPI",),
        "The mechanisms that a listener with SASL offers.",
        note=f"Set it for such a listener: {', '.join(MECHANISMS)} are built, GSSAPI is not.",
    )
    sasl_jaas_config: Key[str | None] = Key(
        PASSWORD,
        None,
        "A mechanism's login: its users for PLAIN, and the user of connections to other brokers.",
        Validator(_login, "a login in JAAS form"),
        PER_BROKER,
        note="Write it as listener.name.<listener>.<mechanism>.sasl.jaas.config. It can't change at"
        " runtime for OAUTHBEARER.",
    )
    sasl_mechanism_inter_broker_protocol = string(
        "GSSAPI",
        "The mechanism between brokers, if their listener has SASL.",
        note="Set it for such a listener; GSSAPI is not built.",
    )
    sasl_server_max_receive_size = integer(
        65536,
        "The largest request before a client has authenticated.",
        between(1, 16 * 1024 * 1024),
        note="Kafka's default is 524288.",
    )
    connections_max_reauth_ms = long(
        0,
        "Close the connection of a client that hasn't authenticated again within this time (KIP-368); 0 for never.",
    )
    connection_failed_authentication_delay_ms = integer(
        100, "Delay of the answer to a failed authentication.", between(0, 30_000)
    )
