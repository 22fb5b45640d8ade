"""Admin's calls for quotas, and ``ottla quotas``."""

from __future__ import annotations

import json

import pytest
from tests.cli.ottla_command import Ottla
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

from ottla_client.admin import ClientQuota
from ottla_client.errors import BrokerError, ConfigurationError
from ottla_client.sync import Admin


@pytest.fixture
def ottla(broker: BrokerProcess) -> Ottla:
    return Ottla(broker.bootstrap)


def lists(ottla: Ottla, expected: list[tuple[str, str, float]], *options: str) -> None:
    """Wait until ``ottla quotas list`` shows these: a broker of Kafka learns of a change a moment after its answer."""

    def shown() -> bool:
        rows = json.loads(ottla("quotas", "list", "--json", *options))
        return sorted((row["of"], row["quota"], row["value"]) for row in rows) == sorted(expected)

    wait_for(shown, f"{expected}")


def test_set_list_and_remove(ottla: Ottla) -> None:
    ottla("quotas", "set", "--user", "quinn", "producer_byte_rate=1.5MiB", "consumer_byte_rate=2048")
    ottla("quotas", "set", "--user", "quinn", "--client-id", "<default>", "request_percentage=12.5")
    ottla("quotas", "set", "--ip", "10.9.8.7", "connection_creation_rate=20")
    of_both = ("user quinn, client-id <default>", "request_percentage", 12.5)
    of_user = [("user quinn", "consumer_byte_rate", 2048), ("user quinn", "producer_byte_rate", 1572864)]
    lists(ottla, [of_both, *of_user], "--user", "quinn")
    lists(ottla, [("ip 10.9.8.7", "connection_creation_rate", 20)], "--ip", "10.9.8.7")

    ottla("quotas", "remove", "--user", "quinn", "consumer_byte_rate")
    lists(ottla, [of_both, of_user[1]], "--user", "quinn")
    failed = ottla.run("quotas", "remove", "--user", "quinn", "consumer_byte_rate")
    assert (failed.exit_code, "user quinn has no quota consumer_byte_rate" in failed.stderr) == (1, True)

    ottla("quotas", "remove", "--user", "quinn")
    lists(ottla, [of_both], "--user", "quinn")
    ottla("quotas", "remove", "--user", "quinn", "--client-id", "<default>")
    ottla("quotas", "remove", "--ip", "10.9.8.7")
    lists(ottla, [], "--ip", "10.9.8.7")
    assert ottla.run("quotas", "remove", "--ip", "10.9.8.7").exit_code == 1
    lists(ottla, [], "--user", "quinn")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["set", "--user", "a", "producer_rate=1"], "did you mean producer_byte_rate"),
        (["set", "user=a", "request_percentage=1"], "unknown quota 'user'; use one of producer_byte_rate"),
        (["set", "--user", "a", "request_percentage=1M"], "write a number such as 50"),
        (["set", "--user", "a", "producer_byte_rate=fast"], "1048576 or 1MiB"),
        (["set", "producer_byte_rate=1"], "name whose quota"),
        (["set", "--user", "a", "--ip", "10.0.0.1", "connection_creation_rate=1"], "leave out --user"),
        (["remove"], "name whose quota"),
    ],
)
def test_wrong_arguments(ottla: Ottla, arguments: list[str], why: str) -> None:
    done = ottla.run("quotas", *arguments)
    assert done.exit_code == 2
    assert why in " ".join(done.stderr.split())


def test_admin(broker: BrokerProcess) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.alter_client_quotas({"client-id": "quorra"}, {"request_percentage": 3}, validate_only=True)
        assert admin.describe_client_quotas({"client-id": "quorra"}) == []
        admin.alter_client_quotas({"client-id": "quorra"}, {"request_percentage": 3})
        expected = ClientQuota({"client-id": "quorra"}, {"request_percentage": 3})
        wait_for(lambda: expected in admin.describe_client_quotas(types=["client-id"]), f"{expected}")
        assert expected not in admin.describe_client_quotas(types=["user"])
        admin.alter_client_quotas({"client-id": "quorra"}, {"request_percentage": None})
        with pytest.raises(BrokerError):
            admin.alter_client_quotas({"client-id": "quorra"}, {"no_such_quota": 1})
        with pytest.raises(ConfigurationError, match="not a type of entity"):
            admin.describe_client_quotas({"client": "a"})
        with pytest.raises(ConfigurationError, match="entity is empty"):
            admin.alter_client_quotas({}, {"request_percentage": 3})
