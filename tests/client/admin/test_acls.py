"""Admin's calls and ``ottla acls``, against a broker with access control."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import ClassVar, cast

import pytest
from tests.cli.ottla_command import Ottla
from tests.support.processes import BrokerProcess

from ottla_cli.acls.rules import binding_of, explain
from ottla_cli.security.command import gather
from ottla_cli.security.probe import Prober
from ottla_client.admin import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    PatternType,
    ResourcePattern,
)
from ottla_client.admin import (
    Admin as AsyncAdmin,
)
from ottla_client.errors import BrokerError, ConnectError
from ottla_client.sync import Admin
from ottla_client.types import Node
from ottla_protocol.errors import ErrorCode

pytestmark = pytest.mark.ottla_only

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path_factory.mktemp("guarded") / "data", SETTINGS).start()
    yield running
    running.stop()


@pytest.fixture
def ottla(guarded: BrokerProcess) -> Iterator[Ottla]:
    yield Ottla(guarded.bootstrap)
    with Admin(guarded.bootstrap) as admin:
        admin.delete_acls([AclFilter()])


def test_calls(guarded: BrokerProcess) -> None:
    orders = AclBinding(
        ResourcePattern(AclResource.TOPIC, "orders"),
        AclEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW),
    )
    prefix = AclBinding(
        ResourcePattern(AclResource.GROUP, "b", PatternType.PREFIXED),
        AclEntry("User:*", "10.0.0.1", AclOperation.ALL, AclPermission.DENY),
    )
    with Admin(guarded.bootstrap) as admin:
        admin.create_acls([orders, prefix])
        assert admin.describe_acls() == [orders, prefix]
        assert admin.describe_acls(AclFilter(AclResource.GROUP, "billing", PatternType.MATCH)) == [prefix]
        bad = orders._replace(pattern=orders.pattern._replace(name="a/b"))
        with pytest.raises(BrokerError) as refused:
            admin.create_acls([bad])
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert admin.delete_acls([AclFilter(principal="User:alice"), AclFilter()]) == [orders, prefix]
        assert admin.describe_acls() == []


def test_without_security(broker: BrokerProcess) -> None:
    assert "set their authorizer.class.name (SECURITY_DISABLED)" in Ottla(broker.bootstrap).fails(
        "acls", "list"
    )
    assert "tokens need a connection that logged in" in Ottla(broker.bootstrap).fails("tokens", "create")


def test_add_list_and_remove(ottla: Ottla) -> None:
    assert ottla.run("acls", "list").stderr == "no ACLs\n"
    assert ottla("acls", "add", "alice", "read", "topic:orders") == "User:alice may read topic:orders\n"
    ottla("acls", "add", "*", "describe-configs", "topic:orders-*", "--deny", "--host", "10.0.0.1")
    ottla("acls", "add", "Group:ops", "alter", "cluster")
    lines = ottla("acls", "list").splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["Group:ops", "allow", "alter", "cluster", "*"],
        ["User:*", "deny", "describe-configs", "topic:orders-*", "10.0.0.1"],
        ["User:alice", "allow", "read", "topic:orders", "*"],
    ]
    found = json.loads(ottla("acls", "list", "--resource", "topic:orders-eu", "--json"))
    assert [acl["resource"] for acl in found] == ["topic:orders-*"]
    found = json.loads(ottla("acls", "list", "--principal", "alice", "--json"))
    assert [acl["operation"] for acl in found] == ["read"]
    assert ottla.run("acls", "remove", "alice", "read", "topic:orders").stderr == "1 ACL removed\n"
    assert "no such ACL" in ottla.fails("acls", "remove", "alice", "read", "topic:orders")


@pytest.mark.parametrize(
    ("host", "advice"),
    [
        ("10.0.0.0/8", ", without names and networks"),
        ("localhost", ", without names and networks"),
        ("::1", "; write 0:0:0:0:0:0:0:1"),
    ],
)
def test_a_host_that_no_client_has_is_warned_of(ottla: Ottla, host: str, advice: str) -> None:
    done = ottla.run("acls", "add", "alice", "all", "topic:orders", "--deny", "--host", host)
    assert done.exit_code == 0
    assert done.stderr == (
        f"warning: no client matches host {host}: brokers compare it as text with the client's IP address{advice}\n"
    )


def test_hosts_in_javas_form(ottla: Ottla) -> None:
    words = ("alice", "read", "topic:orders", "--host")
    assert ottla.run("acls", "add", *words, "0:0:0:0:0:0:0:1").stderr == ""
    assert ottla("acls", "explain", *words, "::1").startswith("allowed")


def test_explain(ottla: Ottla) -> None:
    def explain(*words: str) -> str:
        return ottla("acls", "explain", *words).strip()

    assert explain("alice", "read", "topic:orders") == "denied: there are no ACLs for the resource"
    ottla("acls", "add", "alice", "write", "topic:orders*")
    assert explain("alice", "describe", "topic:orders") == "allowed: User:alice may write topic:orders*"
    assert explain("bob", "write", "topic:orders").startswith("denied: there are ACLs for the resource")
    ottla("acls", "add", "*", "all", "topic:orders", "--deny", "--host", "10.0.0.1")
    assert explain("alice", "write", "topic:orders").startswith("allowed")
    reported = explain("alice", "write", "topic:orders", "--host", "10.0.0.1")
    assert reported == "denied: User:* is denied all operations on topic:orders from 10.0.0.1"
    assert explain("root", "delete", "topic:x") == "allowed: User:root is a super user (super.users)"
    document = json.loads(ottla("acls", "explain", "alice", "write", "topic:orders", "--json"))
    assert document["allowed"] is True


async def test_explain_says_that_settings_cannot_be_read() -> None:
    class Guarded:
        async def describe_acls(self, _: AclFilter) -> list[AclBinding]:
            return []

        async def describe_cluster(self) -> None:
            raise ConnectError("no broker answers")

    pattern, entry = binding_of("alice", "read", "topic:orders", "", False)
    answer = await explain(cast(AsyncAdmin, Guarded()), pattern, entry)
    assert not answer.allowed
    assert answer.reason.endswith("(super.users), can't be read: no broker answers")


async def test_settings_that_kafka_hides_may_allow_it() -> None:
    """Those that a broker of Kafka's has, but shows as sensitive."""
    node = ConfigResource.broker(1)
    hidden = {
        name: ConfigEntry(name, None, ConfigSource.STATIC_BROKER, is_sensitive=True)
        for name in ("super.users", "allow.everyone.if.no.acl.found")
    }

    class Hiding:
        rules: ClassVar[list[AclBinding]] = []

        async def describe_acls(self, _: AclFilter | None = None) -> list[AclBinding]:
            return self.rules

        async def describe_cluster(self) -> ClusterDescription:
            return ClusterDescription("id", 1, (Node(1, "kafka", 9092),))

        async def describe_configs(self, *_: object, **__: object) -> dict[ConfigResource, object]:
            return {node: hidden}

    admin = cast(AsyncAdmin, Hiding())
    asked = binding_of("alice", "read", "topic:orders", "", False)
    answer = await explain(admin, *asked)
    names = "super.users and allow.everyone.if.no.acl.found"
    assert answer.reason == (
        f"there are no ACLs for the resource; the broker doesn't show {names}, which may allow it"
    )
    seen = await gather(admin, Prober(1.0, None, ()))
    assert seen.unchecked == [f"broker 1 doesn't show {names}"]
    Hiding.rules = [asked]
    answer = await explain(admin, *asked)
    assert (answer.allowed, answer.unknown) == (True, "")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("alice", "raed", "topic:t"), "did you mean read?"),
        (("alice", "read", "orders"), "write topic:orders for a topic"),
        (("alice", "read", "topics:t"), "did you mean topic?"),
        (("alice", "read", "topic:"), "write topic:NAME"),
        (("alice", "write", "group:g"), "these are: delete, describe, read"),
        ((":", "read", "topic:t"), "no principal"),
    ],
)
def test_wrong_arguments(ottla: Ottla, words: tuple[str, ...], part: str) -> None:
    assert part in ottla.fails("acls", "add", *words, code=2)
