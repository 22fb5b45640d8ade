"""Certificates and options for a cluster to try: an authority of its own, the brokers, and an administrator.

The authority's key lies beside the certificates, so they are for trials. It needs the package cryptography.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ADMIN: Final = "admin"
"""The user and the name in the certificate of the administrator."""
BROKER: Final = "broker"
"""The name in the brokers' certificates."""

_DAYS: Final = 365

_CLIENT: Final = """bootstrap.servers={bootstrap}
security.protocol=SASL_SSL
ssl.ca.location={folder}/ca.pem
sasl.mechanism=SCRAM-SHA-512
sasl.username={user}
sasl.password={password}
"""

_CERTIFIED: Final = """security.protocol=SSL
ssl.ca.location={folder}/ca.pem
ssl.certificate.location={folder}/admin.pem
ssl.key.location={folder}/admin.pem
"""


_ZOOKEEPER: Final = """zookeeper.set.acl=true
zookeeper.digest.user=broker
zookeeper.digest.password={password}
"""


def make_files(
    folder: Path, brokers: Sequence[Sequence[str]], bootstrap: str, by_certificate: str | None = None
) -> list[Path]:
    """Make the files in ``folder``, unless they are there; returns those made. Raises OSError.

    ``brokers`` has the host names and addresses of each; ``bootstrap`` is where clients find them, and
    ``by_certificate`` where those do that show a certificate, if it is known.

    * ``ca.pem``, ``ca.key``: the authority's certificate and key
    * ``<first name>.pem`` for each broker, ``admin.pem``: a key and its certificate
    * ``admin.properties``: a client that logs in as the administrator, with a random password
    * ``admin-tls.properties``: a client that shows the administrator's certificate instead
    * ``zookeeper.properties``: by which brokers prove to ZooKeeper who they are, and keep their nodes from others
    """
    last = folder / "admin.properties"
    if last.exists():
        return []
    folder.mkdir(parents=True, exist_ok=True)
    where = folder.absolute()
    key, authority = _authority()
    servers = f"bootstrap.servers={by_certificate}\n" if by_certificate else ""
    contents = {
        "ca.key": _pem(key),
        "ca.pem": authority.public_bytes(serialization.Encoding.PEM),
        "admin.pem": _signed(ADMIN, (), key, authority),
        "admin-tls.properties": (servers + _CERTIFIED.format(folder=where)).encode(),
        "zookeeper.properties": _ZOOKEEPER.format(password=token_urlsafe(18)).encode(),
    }
    for names in brokers:
        contents[f"{names[0]}.pem"] = _signed(BROKER, names, key, authority)
    contents[last.name] = client_options(ADMIN, token_urlsafe(18), bootstrap, where).encode()
    for name, data in contents.items():
        write_private(folder / name, data)
    return [folder / name for name in contents]


def client_options(user: str, password: str, bootstrap: str, folder: Path) -> str:
    """The options of a client that logs in by SCRAM over TLS."""
    return _CLIENT.format(bootstrap=bootstrap, folder=folder, user=user, password=password)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner reads. It is there whole, or not at all."""
    draft = path.with_name(f".{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    draft.replace(path)


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


def _signed(
    subject: str,
    names: Sequence[str],
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
) -> bytes:
    """A key and its certificate, which serves both ends of a connection."""
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        _builder(subject, authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    made = builder.sign(authority_key, hashes.SHA256())
    return _pem(key) + made.public_bytes(serialization.Encoding.PEM)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
