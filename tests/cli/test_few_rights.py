"""Commands of a user with few rights: what they show, and what they say is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import Result
from harness.ports import free_port
from tests.cli.ottla_command import Ottla
from tests.support.processes import BrokerProcess

from ottla_client.admin import NewTopic
from ottla_client.sync import Admin

pytestmark = pytest.mark.ottla_only

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="bob-secret";'


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ottla, Ottla]]:
    """The command lines of an administrator, and of bob, who may read and write orders and no more."""
    port = free_port()
    broker = BrokerProcess(
        tmp_path_factory.mktemp("rights") / "data",
        {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
            "password.encoder.secret": "secret",
        },
    )
    broker.settings["listeners"] = f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://127.0.0.1:{port}"
    broker.start()
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 1)])
        ottla = Ottla(broker.bootstrap)
        for operation in ("read", "write"):
            ottla("acls", "add", "bob", operation, "topic:orders")
    yield ottla, Ottla(f"127.0.0.1:{port}")
    broker.kill()


@pytest.fixture
def bob(both: tuple[Ottla, Ottla]) -> Ottla:
    return both[1]


def run(bob: Ottla, *arguments: str, user: str = "bob") -> Result:
    login = (
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=PLAIN",
        f"sasl.username={user}",
        f"sasl.password={user}-secret",
    )
    return bob.run(*arguments, *(each for option in login for each in ("-X", option)))


def test_a_topic_without_its_configs(bob: Ottla) -> None:
    done = run(bob, "topics", "describe", "orders")
    assert (done.exit_code, "orders: 1 partition" in done.stdout) == (0, True), done.output
    assert "the configs of orders can't be read without the permission describe-configs" in done.stderr
    (document,) = json.loads(run(bob, "topics", "describe", "orders", "--json").stdout)
    assert (document["configs"], len(document["partitions"])) == (None, 1)


@pytest.mark.parametrize(
    ("command", "verdict"),
    [(("security", "check"), "secure"), (("cluster", "doctor", "--interval", "0"), "healthy")],
)
def test_a_check_that_saw_nothing_fails(bob: Ottla, command: tuple[str, ...], verdict: str) -> None:
    done = run(bob, *command)
    assert (done.exit_code, "nothing is" in done.stdout) == (1, False), done.output
    assert "needs the permissions describe and describe-configs on the cluster" in done.stderr
    done = run(bob, *command, "--json")
    assert (done.exit_code, json.loads(done.stdout)[verdict]) == (1, None)


def test_users_of_plain_change_while_the_broker_runs(both: tuple[Ottla, Ottla]) -> None:
    ottla, others = both
    assert run(others, "topics", "list", user="eve").exit_code == 1
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    ottla("configs", "alter", "--broker", "1001", "--set", f'{name}={JAAS[:-1]} user_eve="eve-secret";')
    assert run(others, "topics", "list", user="eve").exit_code == 0
