"""`ottla security check` on a broker of either kind."""

from __future__ import annotations

import json

from tests.client.commands.ottla_command import Ottla
from tests.support.processes import BrokerProcess


def test_an_open_broker_that_only_this_machine_reaches(broker: BrokerProcess) -> None:
    done = Ottla(broker.bootstrap).run("security", "check", "--json")
    found = json.loads(done.stdout)
    named = {(each["severity"], each["check"]) for each in found["findings"]}
    assert named >= {("note", "anonymous-listener"), ("note", "no-access-control")}
    assert {severity for severity, _ in named} == {"note"}, found["findings"]
    assert (done.exit_code, found["secure"], found["brokers"]) == (0, True, 1)
