"""`ottla configs`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cli.ottla_command import Ottla
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

Topic = Callable[..., str]


@pytest.fixture
def ottla(broker: BrokerProcess) -> Ottla:
    return Ottla(broker.bootstrap)


def test_describing_a_topic(ottla: Ottla, new_topic: Topic) -> None:
    name = new_topic(retention_ms=5000)
    assert ["retention.ms", "5000", "topic"] in ottla.rows("configs", "describe", name)
    assert "segment.bytes" not in ottla("configs", "describe", name)
    every = ottla.json("configs", "describe", name, "--all")
    assert every[0]["source"] != "default"
    assert every[-1]["source"] == "default"
    assert {"segment.bytes", "retention.ms"} <= {entry["config"] for entry in every}
    documented = ottla.json("configs", "describe", name, "--docs")
    assert all(entry["documentation"] for entry in documented)
    explained = ottla("configs", "describe", name, "--docs")
    assert "retention.ms = 5000  (topic)\n    " in explained
    assert "<" not in explained
    code, shown = ottla.at_terminal("configs", "describe", name, "--all", width=80)
    assert code == 0
    assert "message.timestamp.type" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_altering_a_topic(ottla: Ottla, new_topic: Topic) -> None:
    name = new_topic(retention_ms=5000)
    changes = ["--set", "segment.ms=70000", "--delete", "retention.ms", "--append", "cleanup.policy=compact"]
    dry = ottla.run("configs", "alter", name, *changes, "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "")
    assert "nothing was changed" in dry.stderr
    assert ottla.json("configs", "alter", name, *changes) == [
        {"config": "segment.ms", "before": "604800000", "now": "70000"},
        {"config": "retention.ms", "before": "5000", "now": "604800000"},
        {"config": "cleanup.policy", "before": "delete", "now": "delete,compact"},
    ]
    assert ottla.rows("configs", "alter", name, "--subtract", "cleanup.policy=delete") == [
        ["cleanup.policy", "delete,compact", "compact"]
    ]


def test_brokers(ottla: Ottla) -> None:
    (broker,) = ottla.json("cluster")["brokers"]
    node = str(broker["broker"])
    assert "log.dir" in ottla("configs", "describe", "--broker", node)
    changed = ["alter", "--broker", "default", "--set", "log.index.interval.bytes=8192"]
    ottla("configs", *changed)
    row = ["log.index.interval.bytes", "8192", "dynamic_default_broker", "no"]
    wait_for(lambda: row in ottla.rows("configs", "describe", "--broker", "default"), "the change")
    ottla("configs", "alter", "--broker", "default", "--delete", "log.index.interval.bytes")
    assert f"the cluster has {node}" in ottla.fails("configs", "describe", "--broker", "4711")
    assert "log.index.interval.bytes" in ottla.fails(
        "configs", "alter", "--broker", "default", "--set", "log.index.interval.byte=1"
    )


@pytest.mark.ottla_only
def test_settings_of_listeners_are_the_brokers_to_check(ottla: Ottla) -> None:
    broker = ottla.json("cluster", "describe")["brokers"][0]["broker"]
    change = ("configs", "alter", "--broker", str(broker), "--dry-run", "--set")
    name = "listener.name.plaintext.ssl.keystore.location"
    assert "the broker accepts this" in ottla.run(*change, f"{name}=broker.pem").stderr


@pytest.mark.ottla_only
def test_groups(ottla: Ottla) -> None:
    ottla("configs", "alter", "--group", "pickers", "--set", "share.key.ordered=true")
    row = ["share.key.ordered", "true", "group"]
    wait_for(lambda: row in ottla.rows("configs", "describe", "--group", "pickers"), "the change")
    assert "unknown config share.key.order" in ottla.fails(
        "configs", "alter", "--group", "pickers", "--set", "share.key.order=true"
    )


def test_what_can_not_be(ottla: Ottla, new_topic: Topic) -> None:
    name = new_topic(prefix="accounts-of-all-sorts")
    said = ottla.fails("configs", "alter", name, "--set", "retention.m=1")
    assert said.startswith("Error: unknown config retention.m; did you mean retention.ms")
    assert name in ottla.fails("configs", "describe", name.replace("all", "al"))
    assert "retention.ms" in ottla.fails("configs", "alter", name, "--set", "retention.ms=soon")
    for wrong in (
        ["describe"],
        ["describe", name, "--broker", "1"],
        ["describe", "--broker", "first"],
        ["alter", name],
        ["alter", name, "--set", "retention.ms"],
    ):
        ottla.fails("configs", *wrong, code=2)
    assert "--delete" in ottla.fails("configs", "alter", name, "--unset", "retention.ms", code=2)
    for command in ("describe", "alter"):
        assert "ottla configs" in ottla("configs", command, "--help")
