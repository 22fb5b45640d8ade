"""The page on consumers of Kafka 0.8: its simple program runs, and its tables say what the code says.

The other program needs ZooKeeper: tests/cluster/test_zookeeper_consumer.py runs it.
"""

from __future__ import annotations

import inspect
import re
from ast import literal_eval
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import ROOT, marked, text

from ottla_client import Admin, SimpleConsumer, ZookeeperConsumer

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

PAGE = ROOT / "docs/old-consumers.md"


def test_the_simple_program(
    own_broker: Callable[..., BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    broker = own_broker()
    programs = marked(PAGE, "file")
    assert programs.keys() == marked(PAGE, "output").keys() == {"simple.py", "high_level.py"}
    source = programs["simple.py"].replace("127.0.0.1:9092", broker.bootstrap)
    exec(compile(source, "<docs/old-consumers.md>", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == marked(PAGE, "output")["simple.py"]


@pytest.mark.parametrize("client", [SimpleConsumer, ZookeeperConsumer])
def test_every_option_is_on_the_page(client: type) -> None:
    part = text(PAGE).split(f"### Options of {client.__name__}\n")[1].split("\n## ")[0]
    reported: dict[str, object] = {}
    for names, default in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `(.+?)` \|", part, re.MULTILINE):
        reported |= dict.fromkeys(re.findall(r"\w+", names), literal_eval(default))
    known = {
        name: parameter.default
        for name, parameter in inspect.signature(client).parameters.items()
        if parameter.kind is not parameter.VAR_POSITIONAL
    }
    shared = inspect.signature(Admin).parameters.keys() - {"default_api_timeout_ms"}
    assert reported == {
        name: default
        for name, default in known.items()
        if name not in shared and name not in ("zookeeper_connect", "client_id")
    }
