"""Small programs in Node and Go against the unmodified client libraries kafkajs, franz-go and sarama.

They are built in the cache folder with the language's own package tool; what each checks stands at its top.
"""

from __future__ import annotations

import pytest
from harness.brokers import Broker
from tests.interop.support import PROGRAMS, built, needed, run


def test_kafkajs(broker: Broker) -> None:
    node, npm = needed("node"), needed("npm")
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline"]
    folder = built("node", PROGRAMS / "node", "node_modules", command)
    output = run([node, "round_trip.js", broker.address, "kafkajs-round-trip"], cwd=folder)
    assert output.splitlines()[-1] == "ok"


@pytest.mark.parametrize("client", ["kgo", "sarama"])
def test_go_client(broker: Broker, client: str) -> None:
    go = needed("go")
    folder = built("go", PROGRAMS / "go", "bin", [go, "build", "-o", "bin/", "./..."])
    output = run([str(folder / "bin" / client), broker.address, f"{client}-round-trip"])
    assert output.splitlines()[-1] == "ok"
