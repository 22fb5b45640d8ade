"""Access control lists in the store: Kafka's nodes, changes of several brokers, and nodes that can't be read."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable

import pytest
from tests.support.clock import FakeClock
from tests.support.handlers import Client

from ottla_broker.controller.acls import Acls
from ottla_broker.network.service import Principal
from ottla_broker.security.acl_authorizer import AclAuthorizer
from ottla_broker.security.audit import ALL, DENIED, OFF, AuditLog
from ottla_broker.store.api import NoNodeError, StoreFailedError
from ottla_broker.store.embedded import EmbeddedStore
from ottla_protocol.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
    Verdict,
    java_host,
)
from ottla_protocol.errors import ErrorCode

ORDERS = ResourcePattern(AclResource.TOPIC, "orders")
PREFIX = ResourcePattern(AclResource.TRANSACTIONAL_ID, "pay-", PatternType.PREFIXED)


def allow(
    pattern: ResourcePattern, operation: AclOperation = AclOperation.READ, who: str = "User:a"
) -> AclBinding:
    return AclBinding(pattern, AclEntry(who, "*", operation, AclPermission.ALLOW))


async def loaded(store: EmbeddedStore) -> Acls:
    acls = Acls(store, FakeClock())
    await acls.load()
    return acls


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not check():
            await asyncio.sleep(0.01)


async def test_rules_are_in_kafkas_nodes(store: EmbeddedStore) -> None:
    acls = await loaded(store)
    outcomes = await acls.create([allow(ORDERS), allow(PREFIX, AclOperation.DESCRIBE_CONFIGS)])
    assert {outcome.error for outcome in outcomes} == {ErrorCode.NONE}
    data, _ = await store.get("/kafka-acl/Topic/orders")
    assert json.loads(data) == {
        "version": 1,
        "acls": [{"principal": "User:a", "permissionType": "Allow", "operation": "Read", "host": "*"}],
    }
    data, _ = await store.get("/kafka-acl-extended/prefixed/TransactionalId/pay-")
    assert json.loads(data)["acls"][0]["operation"] == "DescribeConfigs"
    again = await loaded(store)
    assert dict(again.rules) == dict(acls.rules)
    await again.delete([AclFilter()])
    with pytest.raises(NoNodeError):
        await store.get("/kafka-acl/Topic/orders")


async def test_other_brokers_follow_by_notifications(store: EmbeddedStore) -> None:
    one, other = await loaded(store), await loaded(store)
    one.start()
    other.start()
    try:
        await one.create([allow(ORDERS)])
        await until(lambda: len(other.rules) == 1)
        assert await store.children("/kafka-acl-changes") == ["acl_changes_0000000000"]
        data, _ = await store.get("/kafka-acl-changes/acl_changes_0000000000")
        assert data == b"TOPIC:orders"
        await other.create([allow(PREFIX)])
        await until(lambda: len(one.rules) == 2)
        data, _ = await store.get("/kafka-acl-extended-changes/acl_changes_0000000000")
        assert json.loads(data) == {
            "version": 1,
            "resourceType": "TRANSACTIONAL_ID",
            "name": "pay-",
            "patternType": "PREFIXED",
        }
        await other.delete([AclFilter(name="orders")])
        await until(lambda: len(one.rules) == 1)
        # What can't be read is passed over.
        await store.create("/kafka-acl-changes/acl_changes_", b"nonsense", sequence=True)
        await store.create("/kafka-acl-extended-changes/acl_changes_", b"{}", sequence=True)
        await other.create([allow(ORDERS, AclOperation.WRITE)])
        await until(lambda: len(one.rules) == 2)
    finally:
        await one.close()
        await other.close()


async def test_two_brokers_changes_of_one_pattern_both_count(store: EmbeddedStore) -> None:
    one, other = await loaded(store), await loaded(store)
    await one.create([allow(ORDERS)])
    # The other broker hasn't heard of it, and must not overwrite it.
    await other.create([allow(ORDERS, AclOperation.WRITE)])
    assert len(other.rules.entries(ORDERS)) == 2
    (removed,) = await one.delete([AclFilter(AclResource.TOPIC, "orders", operation=AclOperation.WRITE)])
    assert [binding for binding, _ in removed] == [allow(ORDERS, AclOperation.WRITE)]
    (nothing,) = await one.delete([AclFilter(AclResource.TOPIC, "orders", operation=AclOperation.WRITE)])
    assert nothing == []


async def test_a_rule_that_two_filters_find_is_the_firsts(store: EmbeddedStore) -> None:
    acls = await loaded(store)
    await acls.create([allow(ORDERS), allow(PREFIX)])
    first, second = await acls.delete([AclFilter(name="orders"), AclFilter()])
    assert [binding for binding, _ in first] == [allow(ORDERS)]
    assert [binding for binding, _ in second] == [allow(PREFIX)]


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"version":2,"acls":[]}', b'{"version":1,"acls":[{}]}', b"\xff"]
)
async def test_a_node_that_cannot_be_read_denies(store: EmbeddedStore, data: bytes) -> None:
    acls = await loaded(store)
    await acls.create([allow(ORDERS)])
    await store.set("/kafka-acl/Topic/orders", data)
    again = await loaded(store)
    decision = again.rules.decide("User:a", "1.1.1.1", AclOperation.READ, AclResource.TOPIC, "orders")
    assert decision.verdict is Verdict.DENIED
    (outcome,) = await again.create([allow(ORDERS)])
    assert outcome.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "/kafka-acl/Topic/orders" in (outcome.message or "")


async def test_an_unknown_operation_allows_nothing(store: EmbeddedStore) -> None:
    acls = await loaded(store)
    await acls.create([allow(ORDERS)])
    data, _ = await store.get("/kafka-acl/Topic/orders")
    await store.set("/kafka-acl/Topic/orders", data.replace(b"Read", b"Teleport"))
    again = await loaded(store)
    decision = again.rules.decide("User:a", "1.1.1.1", AclOperation.READ, AclResource.TOPIC, "orders")
    assert decision.verdict is Verdict.NOT_ALLOWED


async def test_a_store_that_fails_changes_nothing(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    acls = await loaded(store)

    async def fail(*_: object, **__: object) -> None:
        raise StoreFailedError("the disk is full")

    monkeypatch.setattr(store, "create", fail)
    (outcome,) = await acls.create([allow(ORDERS)])
    assert (outcome.error, outcome.message) == (ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    assert len(acls.rules) == 0


async def authorizer(store: EmbeddedStore, *, open_: bool = False) -> tuple[Acls, AclAuthorizer]:
    acls = await loaded(store)
    made = AclAuthorizer(
        "INTERNAL",
        acls,
        {"User:root"},
        allow_without_rules=open_,
        audit=AuditLog(FakeClock(), OFF),
    )
    return acls, made


async def test_decisions_are_made_again_when_rules_change(store: EmbeddedStore) -> None:
    acls, made = await authorizer(store)
    client = Client(principal=Principal("User", "a"))

    def may(operation: AclOperation) -> bool:
        return made.authorize(client, operation, AclResource.TOPIC, "orders")

    assert not may(AclOperation.READ)
    assert not made.authorize_by_type(client, AclOperation.READ, AclResource.TOPIC)
    await acls.create([allow(ORDERS)])
    assert may(AclOperation.READ)
    assert may(AclOperation.DESCRIBE)
    assert not may(AclOperation.WRITE)
    assert made.authorize_by_type(client, AclOperation.READ, AclResource.TOPIC)
    bits = made.operations(client, AclResource.TOPIC, "orders")
    assert bits == 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    await acls.delete([AclFilter()])
    assert not may(AclOperation.READ)


async def test_super_users_may_do_everything_but_stand_in_for_brokers_elsewhere(store: EmbeddedStore) -> None:
    _, made = await authorizer(store)
    root = Client(principal=Principal("User", "root"))
    assert made.authorize(root, AclOperation.DELETE, AclResource.TOPIC, "x")
    assert made.authorize_by_type(root, AclOperation.WRITE, AclResource.TOPIC)
    cluster = AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER_NAME
    assert not made.authorize(root, *cluster)
    assert made.authorize(Client(principal=root.principal, listener="INTERNAL"), *cluster)
    # The inter-broker listener alone isn't enough.
    assert not made.authorize(Client(listener="INTERNAL"), *cluster)
    assert not made.authorize(
        Client(principal=Principal("Group", "root")), AclOperation.READ, AclResource.TOPIC, "x"
    )


async def test_resources_without_rules_can_be_open(store: EmbeddedStore) -> None:
    acls, made = await authorizer(store, open_=True)
    client = Client()
    assert made.authorize(client, AclOperation.WRITE, AclResource.TOPIC, "orders")
    await acls.create([allow(ORDERS)])
    assert not made.authorize(client, AclOperation.WRITE, AclResource.TOPIC, "orders")
    assert made.authorize(client, AclOperation.WRITE, AclResource.TOPIC, "others")


async def test_kept_decisions_are_bounded(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla_broker.security.acl_authorizer._CACHED", 10)
    _, made = await authorizer(store)
    for number in range(100):
        made.authorize(Client(), AclOperation.READ, AclResource.TOPIC, f"t{number}")
        assert len(made._decisions) <= 10
    decided = dict(made._decisions)
    assert not made.authorize(Client(), AclOperation.READ, AclResource.GROUP, "g" * 30_000)
    assert made._decisions == decided


@pytest.mark.parametrize(
    ("host", "java"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::a%eth0", "fe80:0:0:0:0:0:0:a"),
        ("a:b", "a:b"),
    ],
)
def test_addresses_are_compared_as_java_writes_them(host: str, java: str) -> None:
    assert java_host(host) == java


def test_the_audit_log_counts_repeats(events_log: io.StringIO) -> None:
    clock = FakeClock()
    audit = AuditLog(clock, DENIED)
    assert not audit.allowed
    assert AuditLog(clock, ALL).allowed

    def deny(name: str) -> None:
        audit.record(Client(), AclOperation.READ, AclResource.TOPIC, name, allowed=False)

    for _ in range(5):
        deny("orders")
    clock.advance(11)
    deny("orders")
    for number in range(500):
        deny(f"t{number}")
    clock.advance(2)
    deny("last")
    lines = [json.loads(line) for line in events_log.getvalue().splitlines()]
    assert {line["event"] for line in lines} == {"access denied"}
    assert [line.get("repeats") for line in lines[:2]] == [None, 4]
    assert len(lines) == 102
    assert lines[-1]["suppressed"] == 401
    clock.advance(2)
    deny("g" * 30_000)
    assert len(events_log.getvalue().splitlines()[-1]) < 1_000
    assert all(len(str(key)) < 1_000 for key in audit._logged)
