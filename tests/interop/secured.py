"""A broker that asks for a login by each mechanism, and what clients of all languages need for it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from harness.ports import free_port
from tests.support.certificates import Certificates
from tests.support.oauth import AUDIENCE, SECRET, Provider
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire

from ottla_client.sync import Admin
from ottla_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla_protocol.sasl.scram import salt_password

_SECURITY = "org.apache.kafka.common.security"
_OAUTH = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"
MODULES = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SECURITY}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SECURITY}.scram.ScramLoginModule",
}
_ITERATIONS = 4096


class Secured:
    """A broker whose clients have to log in.

    Besides the listener for administration, it has three with TLS: for logins, for client certificates, and for tokens
    without signatures. Clients log in again after 1.5 seconds where they use SCRAM-SHA-256. Alice has a password for
    SCRAM, bob one for PLAIN.
    """

    def __init__(self, folder: Path, certificates: Certificates, provider: Provider) -> None:
        self.folder = folder
        self.certificates = certificates
        self.provider = provider
        self.keystore = folder / "keystore.pem"
        shutil.copy(certificates.server, self.keystore)
        keys = folder / "keys.json"
        keys.write_text(json.dumps(provider.jwks()))
        self.sasl, self.mutual, self.unsigned = (f"127.0.0.1:{free_port()}" for _ in range(3))
        handler = f"{_SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
        self.broker = BrokerProcess(
            folder / "data",
            {
                "listener.security.protocol.map": (
                    "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,MUTUAL:SSL,UNSIGNED:SASL_SSL"
                ),
                "ssl.keystore.location": self.keystore,
                "ssl.truststore.location": certificates.authority,
                "listener.name.sasl.sasl.enabled.mechanisms": ",".join((*MODULES, "OAUTHBEARER")),
                "listener.name.sasl.plain.sasl.jaas.config": f'{MODULES["PLAIN"]} required user_bob="bobs";',
                "listener.name.sasl.scram-sha-256.connections.max.reauth.ms": 1500,
                "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
                "listener.name.sasl.sasl.oauthbearer.expected.audience": AUDIENCE,
                "listener.name.sasl.sasl.oauthbearer.expected.issuer": provider.issuer,
                "listener.name.unsigned.sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.unsigned.oauthbearer.sasl.server.callback.handler.class": handler,
                "listener.name.mutual.ssl.client.auth": "required",
                "delegation.token.secret.key": "a secret",
                "group.initial.rebalance.delay.ms": 0,
                "offsets.topic.num.partitions": 1,
            },
        )
        self.broker.settings["listeners"] = (
            f"PLAINTEXT://{self.broker.bootstrap},SASL://{self.sasl},MUTUAL://{self.mutual},"
            f"UNSIGNED://{self.unsigned}"
        )

    def add_users(self) -> None:
        """Give alice her password."""
        salt = b"sixteen bytes of"
        upsertions = [
            ScramCredentialUpsertion(
                name="alice",
                mechanism=mechanism,
                iterations=_ITERATIONS,
                salt=salt,
                salted_password=salt_password(name, "alices", salt, _ITERATIONS),
            )
            for mechanism, name in enumerate(("SCRAM-SHA-256", "SCRAM-SHA-512"), 1)
        ]
        with Wire(self.broker.port) as wire:
            answer = wire.call(AlterUserScramCredentialsRequest(upsertions=upsertions), 0)
        assert [each.error_code for each in answer.results] == [0], answer

    # For Java

    def options(self, name: str, lines: dict[str, str]) -> str:
        """A properties file of a client."""
        path = self.folder / f"{name}.properties"
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.certificates.authority}
        path.write_text("".join(f"{key}={value}\n" for key, value in {**trusted, **lines}.items()))
        return str(path)

    def login(self, mechanism: str, user: str, password: str, more: str = "") -> str:
        """A properties file that logs in; ``more``: further options of the login module."""
        module = f'{MODULES[mechanism]} required username="{user}" password="{password}"{more};'
        given = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": module}
        return self.options(f"{mechanism}-{user}", given)

    def java_logins(self, version: str) -> list[str]:
        """Addresses and properties files, one after the other, of each way to log in that a version has."""
        certificate = {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificates.broker,
        }
        oauth = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
        if version.startswith("2."):
            # It takes no PEM file without a password.
            certificate |= self._pkcs12()
            # Before it can ask for tokens, it makes them itself.
            oauth["sasl.jaas.config"] = f'{_OAUTH} required unsecuredLoginStringClaim_sub="alice";'
            by_token = self.unsigned
        else:
            oauth["sasl.login.callback.handler.class"] = (
                f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
            )
            oauth["sasl.oauthbearer.token.endpoint.url"] = f"{self.provider.url}/token"
            oauth["sasl.jaas.config"] = f'{_OAUTH} required clientId="alice" clientSecret="{SECRET}";'
            by_token = self.sasl
        return [
            *(self.sasl, self.login("PLAIN", "bob", "bobs")),
            *(self.sasl, self.login("SCRAM-SHA-256", "alice", "alices")),
            *(self.sasl, self.login("SCRAM-SHA-512", "alice", "alices")),
            *(by_token, self.options(f"oauth-{version}", oauth)),
            *(self.mutual, self.options("mutual", certificate)),
        ]

    def _pkcs12(self) -> dict[str, str]:
        store = self.folder / "client.p12"
        command = ["openssl", "pkcs12", "-export", "-passout", "pass:secret", "-out", str(store)]
        subprocess.run([*command, "-in", self.certificates.broker], check=True, timeout=60)
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": "secret",
            "ssl.key.password": "secret",
        }

    # For Go and Node

    def logins(self, *, with_tokens: bool = False) -> str:
        """A JSON file with each way to log in; ``with_tokens``: by a delegation token as well."""
        common = {"address": self.sasl, "ca": self.certificates.authority}
        alice = {"user": "alice", "password": "alices"}
        each: list[dict[str, Any]] = [
            {**common, "mechanism": "PLAIN", "user": "bob", "password": "bobs"},
            {**common, "mechanism": "SCRAM-SHA-256", **alice},
            {**common, "mechanism": "SCRAM-SHA-512", **alice},
            {**common, "mechanism": "OAUTHBEARER", "token": self.provider.token("alice")},
            {**common, "address": self.mutual, "certificate": self.certificates.broker},
        ]
        if with_tokens:
            with Admin(
                self.sasl,
                security_protocol="SASL_SSL",
                ssl_cafile=self.certificates.authority,
                sasl_mechanism="SCRAM-SHA-512",
                sasl_plain_username="alice",
                sasl_plain_password="alices",
            ) as admin:
                token = admin.create_delegation_token()
            by_token = {"user": token.id, "password": token.password, "tokenAuth": True}
            each.append({**common, "mechanism": "SCRAM-SHA-512", **by_token})
        path = self.folder / f"logins-{with_tokens}.json"
        path.write_text(json.dumps(each))
        return str(path)
