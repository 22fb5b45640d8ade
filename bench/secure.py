"""Certificates, passwords and settings of a cluster in which everyone proves who they are.

Brokers talk to each other by mutual TLS, clients log in by SCRAM over TLS, and ACLs decide. The authority is for
trials: its key lies beside the certificates.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from harness.java import Unavailable
from harness.zookeeper import HOST

_DAYS: Final = 365
_ADMIN: Final = "admin"
_SECONDS: Final = 60.0

BROKER: Final = """listeners=BROKERS://{host}:{inside},CLIENTS://{host}:{port}
listener.security.protocol.map=BROKERS:SSL,CLIENTS:SASL_SSL
inter.broker.listener.name=BROKERS
ssl.keystore.location={folder}/broker.pem
ssl.truststore.location={folder}/ca.pem
ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT
listener.name.brokers.ssl.client.auth=required
listener.name.clients.sasl.enabled.mechanisms=SCRAM-SHA-512
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:broker;User:admin
max.connections.per.ip=1000
"""
"""What a broker's properties have instead of a plain listener."""

_CLIENT: Final = """bootstrap.servers={bootstrap}
security.protocol=SASL_SSL
ssl.ca.location={folder}/ca.pem
sasl.mechanism=SCRAM-SHA-512
sasl.username={user}
sasl.password={password}
"""


class SecureFiles:
    """The files of a secured cluster, made at its first start.

    ``ca.pem`` is the authority's certificate, ``broker.pem`` and ``admin.pem`` are certificates with their keys, and
    ``admin.properties`` has the options of a client that logs in as the administrator.
    """

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.admin = folder / "admin.properties"
        self._bootstrap = bootstrap

    def make(self) -> None:
        """Make the files that are missing."""
        if self.admin.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        key, authority = _authority()
        _write(self.folder / "ca.key", _pem(key))
        _write(self.folder / "ca.pem", authority.public_bytes(serialization.Encoding.PEM))
        for name in ("broker", _ADMIN):
            _write(self.folder / f"{name}.pem", _signed(name, key, authority))
        self.write_client(_ADMIN, token_urlsafe(18), self.admin)

    def write_client(self, user: str, password: str, path: Path) -> None:
        """Write the options of a client that logs in as ``user``."""
        text = _CLIENT.format(bootstrap=self._bootstrap, folder=self.folder, user=user, password=password)
        _write(path, text.encode())

    def tls(self) -> Mapping[str, Any]:
        """The options of a client that shows the administrator's certificate to the listener of brokers."""
        store = str(self.folder / f"{_ADMIN}.pem")
        return {
            "security_protocol": "SSL",
            "ssl_cafile": str(self.folder / "ca.pem"),
            "ssl_certfile": store,
        }

    def create_admin(self, brokers: str) -> None:
        """Give the administrator the password of ``admin.properties``. Raises Unavailable."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        options = dict(line.split("=", 1) for line in self.admin.read_text().splitlines())
        store = str(self.folder / f"{_ADMIN}.pem")
        client = AdminClient(
            {
                "bootstrap.servers": brokers,
                "security.protocol": "SSL",
                "ssl.ca.location": str(self.folder / "ca.pem"),
                "ssl.certificate.location": store,
                "ssl.key.location": store,
            }
        )
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, iterations=8192)
        upsertion = UserScramCredentialUpsertion(_ADMIN, credential, options["sasl.password"].encode())
        try:
            client.alter_user_scram_credentials([upsertion], request_timeout=_SECONDS)[_ADMIN].result(
                _SECONDS
            )
        except (KafkaException, TimeoutError) as error:
            raise Unavailable(f"the administrator's password could not be set: {error}") from error


def _write(path: Path, data: bytes) -> None:
    """Write a file that only its owner reads."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=_DAYS))
    )


def _authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = "Ottla's authority for trials"
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _builder(name, _name(name), key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, made


def _signed(subject: str, authority_key: ec.EllipticCurvePrivateKey, authority: x509.Certificate) -> bytes:
    """A key and its certificate, which serves both ends of a connection on this machine."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address(HOST))])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    made = (
        _builder(subject, authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .add_extension(usage, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    return _pem(key) + made.public_bytes(serialization.Encoding.PEM)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
