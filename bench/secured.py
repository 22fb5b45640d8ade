"""One broker of either kind with a listener for logins: SCRAM-SHA-512 over TLS 1.3, and ACLs.

The other listener, the broker's ``port``, is open, and its users may do everything; the bench sets up topics there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.brokers import HOST, Broker, Ottla, running
from harness.ports import free_port

from bench.context import Bench
from ottla_cli.security.trial_files import make_files
from ottla_client.sync import Admin

_PASSWORD: Final = "a password for the bench"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Secured:
    """A running broker, and the port and the files of its secured listener."""

    broker: Broker
    port: int
    files: Path

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def add_user(self, name: str) -> dict[str, str]:
        """Let a user log in; returns the options of its clients, by librdkafka's names."""
        with Admin(self.broker.address) as admin:
            admin.set_password(name, _PASSWORD, iterations=4096)
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.files / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": _PASSWORD,
        }


def _settings(kind: type[Broker], port: int, secured: int, files: Path) -> Mapping[str, str]:
    both = f"PLAINTEXT://{HOST}:{port},SECURE://{HOST}:{secured}"
    common = {
        "listeners": both,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "ssl.keystore.location": str(files / "broker.pem"),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.location": str(files / "ca.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.enabled.protocols": "TLSv1.3",
        "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "super.users": "User:ANONYMOUS;User:root",
        "max.connections.per.ip": "5000",
        "group.initial.rebalance.delay.ms": "0",
    }
    if issubclass(kind, Ottla):
        return {**common, "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    controller = free_port()
    return {
        **common,
        "listeners": f"{both},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": both,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }  # fmt: skip


@contextmanager
def all_secured(bench: Bench) -> Iterator[list[Secured]]:
    """Start all brokers, as :meth:`Bench.all_up` does."""
    files = bench.folder / f"secure-{next(_numbers)}"
    make_files(files, [("broker", "localhost", HOST)], HOST)
    with ExitStack() as stack:
        started = []
        for kind in bench.kinds:
            port, secured = free_port(), free_port()
            folder = bench.folder / f"{kind.name}-secure-{next(_numbers)}"
            broker = kind(folder, dict(_settings(kind, port, secured, files)), port)
            started.append(Secured(stack.enter_context(running(broker)), secured, files))
        yield started
