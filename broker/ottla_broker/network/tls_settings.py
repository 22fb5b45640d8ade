"""The TLS of a listener and of connections to other brokers: settings, key stores, and OpenSSL's contexts.

Only this module reads key stores. It is imported where a listener uses TLS, because it loads OpenSSL.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla_broker.config import BrokerConfig
from ottla_broker.config.listener_settings import full_name
from ottla_broker.config.model import Key
from ottla_broker.config.security_keys import TlsKeys
from ottla_broker.events import get_logger

_log = get_logger()

_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""How Java's key stores begin: JKS and JCEKS."""
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_CONVERT: Final = (
    "Ottla reads PEM and PKCS12; convert a JKS store:"
    " keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12"
)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_SUITES_13: Final = frozenset(
    ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
)
_JAVA_SUITE: Final = re.compile(
    r"TLS_(?:(ECDHE|DHE)_)?(RSA|ECDSA)_WITH_(AES)_(128|256)_(GCM|CBC)_(SHA(?:256|384)?)"
    r"|TLS_(ECDHE|DHE)_(RSA|ECDSA)_WITH_CHACHA20_POLY1305_SHA256"
)


class TlsError(ValueError):
    """A key store, or a setting of TLS, can't be used. ``key`` is the setting at fault."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The configuration of a listener's TLS. Stores are read by :meth:`server` and :meth:`client`."""

    listener: str
    keystore_type: str
    keystore_location: str | None
    keystore_password: str | None
    keystore_key: str | None
    keystore_chain: str | None
    key_password: str | None
    truststore_type: str
    truststore_location: str | None
    truststore_password: str | None
    truststore_certificates: str | None
    client_auth: str
    protocols: tuple[str, ...]
    suites: tuple[str, ...]
    check_host: bool
    mapping_rules: str

    @classmethod
    def of(
        cls, config: BrokerConfig, listener: str, settings: Mapping[str, str] | None = None
    ) -> TlsSettings:
        """The settings in force for a listener, or those that ``settings`` would bring."""

        def get(key: Key[str | None]) -> str | None:
            return config.of_listener(listener, key, settings) or None

        return cls(
            listener=listener,
            keystore_type=config.of_listener(listener, TlsKeys.ssl_keystore_type, settings),
            keystore_location=get(TlsKeys.ssl_keystore_location),
            keystore_password=get(TlsKeys.ssl_keystore_password),
            keystore_key=get(TlsKeys.ssl_keystore_key),
            keystore_chain=get(TlsKeys.ssl_keystore_certificate_chain),
            key_password=get(TlsKeys.ssl_key_password),
            truststore_type=config.of_listener(listener, TlsKeys.ssl_truststore_type, settings),
            truststore_location=get(TlsKeys.ssl_truststore_location),
            truststore_password=get(TlsKeys.ssl_truststore_password),
            truststore_certificates=get(TlsKeys.ssl_truststore_certificates),
            client_auth=config.of_listener(listener, TlsKeys.ssl_client_auth, settings),
            protocols=config.of_listener(listener, TlsKeys.ssl_enabled_protocols, settings),
            suites=config.of_listener(listener, TlsKeys.ssl_cipher_suites, settings),
            check_host=config.of_listener(listener, TlsKeys.ssl_endpoint_identification_algorithm, settings)
            != "",
            mapping_rules=config.of_listener(listener, TlsKeys.ssl_principal_mapping_rules, settings),
        )

    def server(self) -> ssl.SSLContext:
        """The context for accepted connections. Reads files; raises TlsError."""
        if self.keystore_location is None and self.keystore_key is None:
            raise self._error(
                TlsKeys.ssl_keystore_location,
                "is missing: a TLS listener needs a file with a private key and its certificates",
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load_key(context)
        context.verify_mode = _CLIENT_AUTH[self.client_auth]
        if self.client_auth != "none":
            self._load_trust(context)
        context.options |= ssl.OP_NO_RENEGOTIATION
        self._restrict(context)
        return context

    def client(self) -> ssl.SSLContext:
        """The context for connections to other brokers. Reads files; raises TlsError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_host
        if self.keystore_location is not None or self.keystore_key is not None:
            self._load_key(context)
        self._load_trust(context)
        self._restrict(context)
        return context

    def _error(self, key: Key[str | None] | Key[str] | Key[tuple[str, ...]], reason: str) -> TlsError:
        return TlsError(full_name(self.listener, key), reason)

    def _load_key(self, context: ssl.SSLContext) -> None:
        where = TlsKeys.ssl_keystore_location
        if self.keystore_key is not None:
            where = TlsKeys.ssl_keystore_key
            if self.keystore_location is not None:
                raise self._error(where, "can't be set together with ssl.keystore.location; remove one")
            if self.keystore_chain is None:
                raise self._error(
                    TlsKeys.ssl_keystore_certificate_chain, "is missing: ssl.keystore.key needs it"
                )
            pem, password = f"{self.keystore_key}\n{self.keystore_chain}".encode(), self.key_password
            shown = ""
        else:
            assert self.keystore_location is not None
            data = self._read(where, self.keystore_location, self.keystore_type)
            shown = f"{self.keystore_location}: "
            if _is_pem(data):
                pem, password = data, self.key_password or self.keystore_password
            else:
                pem, password = self._key_of_pkcs12(data), None
        try:
            with _as_file(pem) as path:
                # Always with a password: without one, OpenSSL would ask for it at the terminal.
                context.load_cert_chain(path, password=password or "")
        except (OSError, ValueError) as error:
            raise self._error(
                where,
                f"{shown}{_why(error)}; a private key and its certificates are needed, and ssl.key.password if"
                " the key is encrypted",
            ) from error

    def _load_trust(self, context: ssl.SSLContext) -> None:
        where = TlsKeys.ssl_truststore_location
        shown = f"{self.truststore_location}: "
        if self.truststore_certificates is not None:
            where, shown = TlsKeys.ssl_truststore_certificates, ""
            if self.truststore_location is not None:
                raise self._error(where, "can't be set together with ssl.truststore.location; remove one")
            data = self.truststore_certificates.encode()
        elif self.truststore_location is not None:
            data = self._read(where, self.truststore_location, self.truststore_type)
        else:
            context.load_default_certs()
            return
        if not _is_pem(data):
            data = self._certificates_of_pkcs12(data)
        certificates = b"\n".join(_CERTIFICATE.findall(data))
        if not certificates:
            raise self._error(where, f"{shown}has no certificates; those of trusted authorities are needed")
        try:
            context.load_verify_locations(cadata=certificates.decode("ascii"))
        except (OSError, ValueError) as error:
            raise self._error(where, f"{shown}{_why(error)}; certificates are needed") from error

    def _read(self, key: Key[str | None], location: str, kind: str) -> bytes:
        try:
            data = Path(location).read_bytes()
        except OSError as error:
            raise self._error(key, f"{location}: {(error.strerror or str(error)).lower()}") from error
        if data.startswith(_JKS):
            raise self._error(key, f"{location} is a JKS store; {_CONVERT}")
        wanted = kind.upper()
        if wanted != "JKS" and _is_pem(data) != (wanted == "PEM"):
            raise self._error(key, f"{location} is not a {wanted} store")
        return data

    def _key_of_pkcs12(self, data: bytes) -> bytes:
        """The private key and the certificates, in PEM."""
        key = TlsKeys.ssl_keystore_location
        serialization, pkcs12 = self._cryptography(key)
        try:
            private, own, others = pkcs12.load_key_and_certificates(data, _bytes(self.keystore_password))
        except ValueError as error:
            raise self._error(
                key,
                f"{self.keystore_location}: {error}; a PKCS12 store and ssl.keystore.password are needed",
            ) from error
        if private is None or own is None:
            raise self._error(key, f"{self.keystore_location}: has no private key with a certificate")
        pem = serialization.Encoding.PEM
        parts = [
            private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
            *(certificate.public_bytes(pem) for certificate in (own, *others)),
        ]
        return b"".join(parts)

    def _certificates_of_pkcs12(self, data: bytes) -> bytes:
        key = TlsKeys.ssl_truststore_location
        serialization, pkcs12 = self._cryptography(key)
        try:
            found = pkcs12.load_pkcs12(data, _bytes(self.truststore_password))
        except ValueError as error:
            raise self._error(
                key,
                f"{self.truststore_location}: {error}; a PKCS12 store and ssl.truststore.password are needed",
            ) from error
        entries = [*([found.cert] if found.cert is not None else []), *found.additional_certs]
        return b"".join(each.certificate.public_bytes(serialization.Encoding.PEM) for each in entries)

    def _cryptography(self, key: Key[str | None]):  # type: ignore[no-untyped-def]
        try:
            from cryptography.hazmat.primitives import serialization
            from cryptography.hazmat.primitives.serialization import pkcs12
        except ImportError as missing:
            raise self._error(
                key,
                f"a PKCS12 store needs the package {missing.name or 'cryptography'}:"
                " pip install 'ottla[security]', or use PEM",
            ) from missing
        return serialization, pkcs12

    def _restrict(self, context: ssl.SSLContext) -> None:
        """Set the versions and the cipher suites."""
        versions = {_VERSIONS[name] for name in self.protocols}
        if not versions:
            raise self._error(TlsKeys.ssl_enabled_protocols, "is empty; name TLSv1.2, TLSv1.3 or both")
        if self.suites:
            newer = _SUITES_13 & set(self.suites)
            older = [name for name in self.suites if name not in _SUITES_13]
            if newer and newer != _SUITES_13 and ssl.TLSVersion.TLSv1_3 in versions:
                raise self._error(
                    TlsKeys.ssl_cipher_suites,
                    "the suites of TLS 1.3 can't be chosen one by one: name all of"
                    f" {', '.join(sorted(_SUITES_13))}, or none of them",
                )
            if not newer:
                versions.discard(ssl.TLSVersion.TLSv1_3)
            if not older:
                versions.discard(ssl.TLSVersion.TLSv1_2)
            if not versions:
                raise self._error(
                    TlsKeys.ssl_cipher_suites, "has no suite for the versions in ssl.enabled.protocols"
                )
            if older:
                try:
                    context.set_ciphers(":".join(map(_openssl_name, older)))
                except ssl.SSLError as error:
                    raise self._error(
                        TlsKeys.ssl_cipher_suites, f"OpenSSL knows none of {', '.join(older)}"
                    ) from error
        context.minimum_version, context.maximum_version = min(versions), max(versions)


def _openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite that may have Java's."""
    match = _JAVA_SUITE.fullmatch(suite)
    if match is None:
        return suite
    if match[7]:
        return f"{match[7]}-{match[8]}-CHACHA20-POLY1305"
    exchange, key, _, bits, mode, digest = match.groups()[:6]
    sign = [] if exchange is None else [exchange, key]
    return "-".join([*sign, f"AES{bits}", *(["GCM"] if mode == "GCM" else []), digest])


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _bytes(password: str | None) -> bytes | None:
    return None if password is None else password.encode()


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    if "PEM lib" in str(reason):
        return "OpenSSL can't use it"  # its own words only name a line of its source
    return str(reason).lower().replace("_", " ") or "it can't be read"


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A file in memory, where there are such, with ``data``: OpenSSL in Python reads keys from files only."""
    descriptor, path = -1, ""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla-key", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp(prefix="ottla-key-")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield path
    finally:
        os.close(descriptor)
        if not path.startswith("/proc/"):
            try:
                os.unlink(path)
            except OSError as error:
                _log.warning("delete this copy of a private key", path=path, reason=str(error))


class TlsContexts:
    """The contexts in force for one listener; :meth:`reload` replaces them. Owned by the loop thread.

    Open connections keep the certificates that they were made with.
    """

    def __init__(self, settings: TlsSettings, make: Callable[[TlsSettings], ssl.SSLContext]) -> None:
        """``make`` is ``TlsSettings.server`` or ``TlsSettings.client``. Raises TlsError."""
        self._make = make
        self.settings = settings
        self.context = make(settings)

    def check(self, settings: TlsSettings) -> None:
        """Raises TlsError if these settings can't be used."""
        self._make(settings)

    def reload(self, settings: TlsSettings) -> None:
        """Use new settings, and read the stores again. Raises TlsError; the old ones stay then."""
        self.context = self._make(settings)
        self.settings = settings
