"""Access control beside Apache Kafka 3.9.1: the same answers, one set of rules for both, and Kafka's own tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import maven
from harness.java import Unavailable
from harness.ports import free_port
from kazoo.client import KazooClient
from tests.interop.conftest import java_tools
from tests.interop.mixed import MixedCluster
from tests.support import acl_matrix
from tests.support.acl_matrix import ADMIN, CLIENT, SETTINGS, VARIANTS, binding, forbidden
from tests.support.acl_rows import ROWS, TOPIC, Row
from tests.support.waiting import wait_for
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeperProcess

from ottla_broker.store.acl_nodes import AclNode
from ottla_protocol.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.describe_acls import DescribeAclsRequest
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

KAFKA, OTTLA = 1, 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """Kafka is the controller. 127.0.0.1, from where the brokers talk too, may do all to the cluster."""
    try:
        maven.kafka_jars()
    except Unavailable as lack:
        pytest.skip(str(lack))
    folder = tmp_path_factory.mktemp("acls")
    zookeeper = ZooKeeperProcess(folder / "zookeeper").start()
    made = MixedCluster(folder, zookeeper, ("kafka", "ottla"), SETTINGS)
    pattern, entry = binding(f"All Cluster:{CLUSTER_NAME}", host=ADMIN)
    address, slash, chroot = made.connect.partition("/")
    try:
        client = KazooClient(address)
        client.start(60)
        path = f"{slash}{chroot}{AclNode.path(pattern)}"
        client.create(path, AclNode.encode(frozenset({entry})), makepath=True)
        client.stop()
        client.close()
        own = made.brokers[KAFKA]
        own.settings |= acl_matrix.user_settings(own.bootstrap, free_port())
        own.start()
        with Wire(made.brokers[KAFKA].port, source=ADMIN) as admin:
            acl_matrix.prepare_topic(admin)
        made.brokers[OTTLA].start()
        yield made
        assert not made.complaints()
    finally:
        made.kill()
        zookeeper.kill()


def described(wire: Wire) -> set[AclBinding]:
    every = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    answer = wire.call(every, 3)
    assert answer.error_code == 0
    return {
        AclBinding(
            ResourcePattern(AclResource(r.resource_type), r.resource_name, PatternType(r.pattern_type)),
            AclEntry(
                acl.principal, acl.host, AclOperation(acl.operation), AclPermission(acl.permission_type)
            ),
        )
        for r in answer.resources
        for acl in r.acls
    }


def _api(row: Row) -> str:
    return ApiKey(row.request.API_KEY).name.lower()


@pytest.fixture(scope="module")
def users(cluster: MixedCluster) -> Iterator[dict[str, Wire]]:
    port = int(str(cluster.brokers[KAFKA].settings["listeners"]).rpartition(":")[2])
    with acl_matrix.logged_in(port) as connections:
        yield connections


@pytest.mark.parametrize("row", [row for row in ROWS if row.kafka], ids=_api)
def test_kafka_lets_each_user_do_the_same(cluster: MixedCluster, users: dict[str, Wire], row: Row) -> None:
    with Wire(cluster.brokers[KAFKA].port, source=ADMIN) as admin:
        acl_matrix.check_users(row, admin, users)


@pytest.mark.parametrize("row", [row for row in ROWS if row.kafka and not row.users], ids=_api)
def test_kafka_gives_the_same_answers(cluster: MixedCluster, row: Row) -> None:
    """The rows that Ottla's own tests go through."""
    port = cluster.brokers[KAFKA].port
    with Wire(port, source=ADMIN) as admin, Wire(port, source=CLIENT) as client:
        assert forbidden(client.call(row.request, row.version)) == {row.refused}
        for variant in VARIANTS:
            rules = acl_matrix.bindings(row, variant)
            acl_matrix.create(admin, rules)
            found = forbidden(client.call(row.request, row.version))
            acl_matrix.delete(admin, rules)
            assert bool(found) != variant[1], variant[0]
        if row.partial is not None:
            rules = [binding(row.rules[0])]
            acl_matrix.create(admin, rules)
            assert forbidden(client.call(row.request, row.version)) == {row.partial}
            acl_matrix.delete(admin, rules)


@pytest.mark.parametrize(("asked", "obeying"), [(KAFKA, OTTLA), (OTTLA, KAFKA)], ids=["kafka", "ottla"])
def test_brokers_of_both_kinds_obey_the_same_rules(cluster: MixedCluster, asked: int, obeying: int) -> None:
    rules = [
        binding("Describe Topic:orders"),
        binding("Read Topic:ord")._replace(
            pattern=ResourcePattern(AclResource.TOPIC, "ord", PatternType.PREFIXED)
        ),
        binding("Write TransactionalId:pay"),
    ]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(timestamp=-1)])]
    )
    ports = [cluster.brokers[number].port for number in (asked, obeying)]
    with (
        Wire(ports[0], source=ADMIN) as admin,
        Wire(ports[1], source=ADMIN) as other,
        Wire(ports[1], source=CLIENT) as client,
    ):
        before = described(admin)

        def refused() -> bool:
            return bool(forbidden(client.call(request, 8)))

        wait_for(refused, "no rule to be in force")
        acl_matrix.create(admin, rules)
        wait_for(lambda: described(other) == before | set(rules), "the rules on the other broker")
        assert not refused()
        acl_matrix.delete(admin, rules)
        wait_for(lambda: described(other) == before, "the rules to be gone on the other broker")
        assert refused()


@pytest.mark.parametrize("broker", [KAFKA, OTTLA], ids=["kafka", "ottla"])
def test_kafkas_tool(cluster: MixedCluster, tmp_path: Path, broker: int) -> None:
    """``kafka-acls.sh`` prints the same against either."""
    java = java_tools(cluster.brokers[broker].bootstrap, maven.KAFKA_VERSION, tmp_path)
    added = java.tool(
        *("acls", "--add", "--allow-principal", "User:alice", "--producer", "--topic", "invoices-"),
        *("--resource-pattern-type", "prefixed"),
    )
    assert "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=invoices-" in added
    listed = java.tool("acls", "--list", "--topic", "invoices-eu", "--resource-pattern-type", "match")
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert f"(principal=User:alice, host=*, operation={operation}, permissionType=ALLOW)" in listed, (
            operation
        )
    removed = java.tool(
        *("acls", "--remove", "--force", "--allow-principal", "User:alice", "--producer"),
        *("--topic", "invoices-", "--resource-pattern-type", "prefixed"),
    )
    assert "invoices" not in java.tool("acls", "--list", "--topic", "invoices-eu"), removed
