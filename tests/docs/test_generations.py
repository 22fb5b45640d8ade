"""The page on six ways to share partitions: each has a command and a picture, and the commands work as written.

tests/cluster/test_zookeeper_consumer.py runs the one with ZooKeeper. That of share groups waits for new records.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from harness.ports import free_port
from tests.cli.ottla_command import OTTLA, Ottla
from tests.docs.pages import ROOT, text

from ottla_client.sync import Producer

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

PAGE = ROOT / "docs/generations.md"
WAYS = (
    "By hand",
    "Members in ZooKeeper",
    "The design of 2012",
    "Classic groups",
    "The consumer protocol",
    "Share groups",
)


def section(title: str) -> str:
    return text(PAGE).split(f"\n## {title}\n")[1].split("\n## ")[0]


def command(title: str) -> str:
    """The first block, which has one command."""
    found = re.search(r"^```(?:sh)?\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1].strip()


def test_each_way_is_in_the_table_and_has_a_command_and_a_picture() -> None:
    rows = re.findall(r"^\| \[[^\]]+\]\(#([\w-]+)\)", text(PAGE), re.MULTILINE)
    assert rows == [title.lower().replace(" ", "-") for title in WAYS]
    for title in WAYS:
        assert command(title)
        assert "```mermaid\nsequenceDiagram\n" in section(title)


def test_the_commands(own_broker: Callable[..., BrokerProcess], capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    broker = own_broker(settings={"coordinator.listener": port, "group.initial.rebalance.delay.ms": 0})
    ottla = Ottla(broker.bootstrap)
    assert "ottla topics create orders --partitions 2\nseq 10 | ottla produce orders\n" in text(PAGE)
    ottla("topics", "create", "orders", "--partitions", "2")
    numbers = [str(number) for number in range(1, 11)]
    with Producer(broker.bootstrap) as producer:
        for number in numbers:
            producer.send("orders", number.encode())
    for title in ("By hand", "Classic groups", "The consumer protocol"):
        name, *arguments = shlex.split(command(title))
        assert name == "ottla"
        done = subprocess.run(
            [OTTLA, *arguments], env=ottla.environment, capture_output=True, text=True, timeout=60, check=True
        )
        assert sorted(done.stdout.split(), key=int) == numbers
    program = shlex.split(command("The design of 2012"))[-1]
    exec(compile(program.replace("127.0.0.1:9094", f"127.0.0.1:{port}"), "<docs/generations.md>", "exec"), {})
    assert "topic='orders'" in capsys.readouterr().out
