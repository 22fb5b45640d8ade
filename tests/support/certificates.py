"""Certificates for tests of TLS, made with the openssl command."""

from __future__ import annotations

import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path


class Certificates:
    """A certificate authority, and PEM files signed by it and by another one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for authority in ("ours", "another"):
            self._make(authority, ["-x509", "-days", "2", "-subj", f"/CN={authority}"], [])
        self.server = self._signed("server", "ours", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.elsewhere = self._signed("elsewhere", "ours", "subjectAltName=DNS:example.org")
        self.broker = self._signed("broker", "ours", "subjectAltName=DNS:broker")
        self.stranger = self._signed("stranger", "another", "subjectAltName=DNS:broker")
        self.locked = self._signed("locked", "ours", "subjectAltName=DNS:broker", password="secret")
        self.authority, self.another = str(folder / "ours.crt"), str(folder / "another.crt")

    @cached_property
    def expired(self) -> str:
        """Signed by the authority, until yesterday."""
        return self._signed("expired", "ours", "subjectAltName=DNS:broker", past=True)

    def asking(self) -> ssl.SSLContext:
        """A server's TLS context, which requires client certificates signed by the authority."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.authority)
        context.load_cert_chain(self.server)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def shown(self, certificate: str | None = "broker", *, trusting: str = "authority") -> ssl.SSLContext:
        """A client's TLS context, with one of the certificates here or none."""
        context = ssl.create_default_context(cafile=getattr(self, trusting))
        if certificate is not None:
            context.load_cert_chain(getattr(self, certificate))
        return context

    def _openssl(self, *args: str | Path) -> None:
        subprocess.run(
            ["openssl", *map(str, args)], cwd=self.folder, check=True, capture_output=True, timeout=60
        )

    def _make(self, name: str, request: list[str], protection: list[str]) -> None:
        out = f"{name}.crt" if "-x509" in request else f"{name}.csr"
        self._openssl(
            *(
                "req",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                *(protection or ["-nodes"]),
            ),
            *("-keyout", f"{name}.key", "-out", out, *request),
        )

    def _signed(
        self, name: str, authority: str, names: str, password: str | None = None, *, past: bool = False
    ) -> str:
        self._make(name, ["-subj", f"/CN={name}"], ["-passout", f"pass:{password}"] if password else [])
        (self.folder / f"{name}.ext").write_text(names)
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.crt"),
        )
        if past:
            self._end_yesterday(name, authority)
        store = self.folder / f"{name}.pem"
        store.write_text(
            (self.folder / f"{name}.key").read_text() + (self.folder / f"{name}.crt").read_text()
        )
        return str(store)

    def _end_yesterday(self, name: str, authority: str) -> None:
        """Sign a certificate again with another time: the command can't do that everywhere."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        made = x509.load_pem_x509_certificate((self.folder / f"{name}.crt").read_bytes())
        key = serialization.load_pem_private_key((self.folder / f"{authority}.key").read_bytes(), None)
        yesterday = datetime.now(UTC) - timedelta(days=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(made.subject)
            .issuer_name(made.issuer)
            .public_key(made.public_key())
            .serial_number(made.serial_number)
            .not_valid_before(yesterday - timedelta(days=1))
            .not_valid_after(yesterday)
        )
        for each in made.extensions:
            builder = builder.add_extension(each.value, each.critical)
        signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
        (self.folder / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
