"""Certificates, passwords and settings of a cluster in which everyone proves who they are.

Brokers talk to each other by mutual TLS, clients log in by SCRAM over TLS, and ACLs decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from harness.java import Unavailable
from harness.zookeeper import HOST

from ottla_cli.security.trial_files import ADMIN, make_files
from ottla_client.errors import ClientError
from ottla_client.sync import Admin
from ottla_protocol.properties import parse_properties

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


class SecureFiles:
    """The files of a secured cluster, made at its first start.

    ``ca.pem`` is the authority's certificate, ``broker.pem`` and ``admin.pem`` are certificates with their keys, and
    ``admin.properties`` has the options of a client that logs in as the administrator. ``inside`` is the brokers' own
    listener, which ``admin-tls.properties`` names.
    """

    def __init__(self, folder: Path, bootstrap: str, inside: str) -> None:
        self.folder = folder
        self.admin = folder / "admin.properties"
        self._bootstrap, self._inside = bootstrap, inside

    def make(self) -> None:
        """Make the files, unless they are there."""
        make_files(self.folder, [("broker", "localhost", HOST)], self._bootstrap, self._inside)

    def tls(self) -> Mapping[str, Any]:
        """The options of a client that shows the administrator's certificate to the listener of brokers."""
        return {
            "security_protocol": "SSL",
            "ssl_cafile": str(self.folder / "ca.pem"),
            "ssl_certfile": str(self.folder / "admin.pem"),
        }

    def create_admin(self, brokers: str) -> None:
        """Give the administrator the password of ``admin.properties``. Raises Unavailable."""
        self.set_password(brokers, ADMIN, self.options()["sasl.password"])

    def set_password(self, brokers: str, user: str, password: str) -> None:
        """Let a user log in. ``brokers`` are the addresses of their own listener. Raises Unavailable."""
        try:
            with Admin(brokers, **self.tls()) as admin:
                admin.set_password(user, password, timeout=_SECONDS)
        except ClientError as error:
            raise Unavailable(f"the password of {user} could not be set: {error}") from error

    def options(self) -> dict[str, str]:
        """The options of ``admin.properties``, by librdkafka's names."""
        return parse_properties(self.admin.read_bytes())
