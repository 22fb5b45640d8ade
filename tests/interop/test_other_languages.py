"""Small programs in Node and Go against the unmodified client libraries kafkajs, franz-go and sarama.

They are built in the cache folder with the language's own package tool; what each checks stands at its top.
"""

from __future__ import annotations

import pytest
from harness.brokers import Broker
from tests.interop.secured import Secured
from tests.interop.support import PROGRAMS, built, needed, run


def _node(program: str, *arguments: str) -> None:
    node, npm = needed("node"), needed("npm")
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline"]
    folder = built("node", PROGRAMS / "node", "node_modules", command)
    assert run([node, program, *arguments], cwd=folder).splitlines()[-1] == "ok"


def _go(program: str, *arguments: str) -> None:
    go = needed("go")
    folder = built("go", PROGRAMS / "go", "bin", [go, "build", "-o", "bin/", "./..."])
    assert run([str(folder / "bin" / program), *arguments]).splitlines()[-1] == "ok"


def test_kafkajs(broker: Broker) -> None:
    _node("round_trip.js", broker.address, "kafkajs-round-trip")


def test_kafkajs_logs_in_by_each_mechanism(secured: Secured) -> None:
    _node("logins.js", secured.logins(), "kafkajs")


@pytest.mark.parametrize("client", ["kgo", "sarama"])
def test_go_client(broker: Broker, client: str) -> None:
    _go(client, broker.address, f"{client}-round-trip")


@pytest.mark.parametrize("client", ["kgo", "sarama"])
def test_go_client_logs_in_by_each_mechanism(secured: Secured, client: str) -> None:
    _go("logins", client, secured.logins(with_tokens=client == "kgo"), client)
