"""Quotas in the store: Kafka's nodes, filters and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from ottla_broker.controller.client_quotas import Change, Component, LocalConfigs, QuotaAdmin
from ottla_broker.metadata.client_quotas import ClientQuotas, QuotaKind
from ottla_broker.store.embedded import EmbeddedStore
from ottla_protocol.errors import ErrorCode, KafkaError

PRODUCE, FETCH, PERCENT = "producer_byte_rate", "consumer_byte_rate", "request_percentage"


async def admin_of(store: EmbeddedStore) -> tuple[QuotaAdmin, ClientQuotas]:
    quotas = ClientQuotas()
    admin = QuotaAdmin(store, LocalConfigs(store), quotas)
    await admin.load()
    return admin, quotas


def described(
    admin: QuotaAdmin, components: Sequence[Component] = (), strict: bool = False
) -> list[tuple[list[tuple[str, str | None]], Mapping[str, float]]]:
    return [(found[0].parts, found[1]) for found in admin.describe(components, strict) if found]


async def set_(admin: QuotaAdmin, parts: list[tuple[str, str | None]], **values: float) -> ErrorCode:
    changes = [Change(key, value) for key, value in values.items()]
    return (await admin.alter(parts, changes, False)).error


async def test_quotas_are_in_kafkas_nodes(store: EmbeddedStore) -> None:
    admin, quotas = await admin_of(store)
    assert await set_(admin, [("user", "a/b")], producer_byte_rate=1024, request_percentage=12.5) == 0
    assert await set_(admin, [("client-id", None), ("user", "a/b")], consumer_byte_rate=5) == 0
    assert await set_(admin, [("client-id", "c")], consumer_byte_rate=7) == 0
    data, _ = await store.get("/config/users/a%2Fb")
    assert json.loads(data) == {"version": 1, "config": {PRODUCE: "1024", PERCENT: "12.5"}}
    data, _ = await store.get("/config/users/a%2Fb/clients/<default>")
    assert json.loads(data)["config"] == {FETCH: "5"}
    again, found = await admin_of(store)
    limit = found.limit(QuotaKind.PRODUCE, "a/b", "x")
    assert limit is not None
    assert limit.rate == 1024
    assert sorted(map(str, described(again))) == sorted(map(str, described(admin)))
    assert await again.alter([("client-id", "c")], [Change(FETCH, None)], False)
    assert found.limit(QuotaKind.FETCH, "z", "c") is None
    assert quotas.limit(QuotaKind.FETCH, "z", "c") is not None, "the other hasn't heard of it"
    await admin.changed("clients", "c")
    assert quotas.limit(QuotaKind.FETCH, "z", "c") is None


async def test_other_settings_of_a_user_stay(store: EmbeddedStore) -> None:
    admin, _ = await admin_of(store)
    await store.create("/config/users/u", b'{"version":1,"config":{"SCRAM-SHA-256":"secret"}}', parents=True)
    assert await set_(admin, [("user", "u")], producer_byte_rate=1) == 0
    data, _ = await store.get("/config/users/u")
    assert json.loads(data)["config"] == {"SCRAM-SHA-256": "secret", PRODUCE: "1"}


async def test_validating_changes_nothing(store: EmbeddedStore) -> None:
    admin, quotas = await admin_of(store)
    outcome = await admin.alter([("user", "u")], [Change(PRODUCE, 1)], True)
    assert outcome.error is ErrorCode.NONE
    assert not quotas.enabled
    assert described(admin) == []


async def test_filters_are_kafkas(store: EmbeddedStore) -> None:
    admin, _ = await admin_of(store)
    entities: list[list[tuple[str, str | None]]] = [
        [("user", "u")],
        [("user", None)],
        [("client-id", "c")],
        [("user", "u"), ("client-id", "c")],
        [("user", "v"), ("client-id", None)],
    ]
    for entity in entities:
        await set_(admin, entity, producer_byte_rate=1)
    await set_(admin, [("ip", "10.0.0.1")], connection_creation_rate=3)

    def found(*components: Component, strict: bool = False) -> list[list[tuple[str, str | None]]]:
        return sorted((parts for parts, _ in described(admin, components, strict)), key=str)

    def only(*wanted: list[tuple[str, str | None]]) -> list[list[tuple[str, str | None]]]:
        return sorted(wanted, key=str)

    assert len(found()) == 6
    assert found(strict=True) == []
    assert found(Component("user", "u")) == only(entities[0], entities[3])
    assert found(Component("user", "u"), strict=True) == only(entities[0])
    assert found(Component("user", None)) == only(entities[1])
    assert found(Component("client-id", None, any_name=True)) == only(entities[2], entities[3], entities[4])
    both = (Component("user", None, any_name=True), Component("client-id", None))
    assert found(*both) == only(entities[4])
    assert found(Component("ip", None, any_name=True)) == only([("ip", "10.0.0.1")])


@pytest.mark.parametrize(
    ("parts", "changes", "message"),
    [
        ([], [], "Invalid empty client quota entity"),
        ([("group", "g")], [], "Unhandled client quota entity type: group"),
        ([("user", "")], [], "Empty user not supported"),
        ([("ip", "1.1.1.1"), ("user", "u")], [], "Invalid quota entity combination"),
        ([("ip", "nowhere.example")], [], "not a valid IP"),
        ([("user", "u")], [Change("connection_creation_rate", 1)], "Invalid configuration key"),
        ([("user", "u")], [Change(PRODUCE, 1.5)], "must be a LONG value"),
        ([("user", "u")], [Change(PRODUCE, 1e300)], "must be a LONG value"),
        ([("user", "u")], [Change(PERCENT, float("nan"))], "must be a number"),
        ([("ip", "1.1.1.1")], [Change("connection_creation_rate", -1)], "must be a INT value"),
        ([("ip", "1.1.1.1")], [Change("connection_creation_rate", 2**31)], "must be a INT value"),
    ],
)
async def test_wrong_changes_are_refused(
    store: EmbeddedStore, parts: list[tuple[str, str | None]], changes: list[Change], message: str
) -> None:
    admin, quotas = await admin_of(store)
    outcome = await admin.alter(parts, changes, False)
    assert outcome.error is ErrorCode.INVALID_REQUEST
    assert message in (outcome.message or "")
    assert not quotas.enabled


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([Component("", None)], ErrorCode.INVALID_REQUEST),
        ([Component("host", None)], ErrorCode.UNSUPPORTED_VERSION),
        ([Component("user", "a"), Component("user", "b")], ErrorCode.INVALID_REQUEST),
        ([Component("user", "a"), Component("ip", "b")], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_wrong_filters_are_refused(
    store: EmbeddedStore, components: list[Component], code: ErrorCode
) -> None:
    admin, _ = await admin_of(store)
    with pytest.raises(KafkaError) as refused:
        admin.describe(components, False)
    assert refused.value.code is code


async def test_nodes_that_make_no_sense_are_passed_over(store: EmbeddedStore) -> None:
    await store.create("/config/users/a", b"{", parents=True)
    await store.create("/config/users/b", b'{"version":1,"config":{"producer_byte_rate":"many"}}')
    await store.create("/config/users/c", b'{"version":1,"config":{"producer_byte_rate":"5"}}')
    admin, quotas = await admin_of(store)
    assert [parts for parts, _ in described(admin)] == [[("user", "c")]]
    assert quotas.limit(QuotaKind.PRODUCE, "b", "") is None


async def test_addresses(store: EmbeddedStore) -> None:
    admin, _ = await admin_of(store)
    heard: list[tuple[str, float | None]] = []
    admin.on_ip = lambda ip, rate: heard.append((ip, rate))
    await set_(admin, [("ip", None)], connection_creation_rate=5)
    await set_(admin, [("ip", "::1")], connection_creation_rate=6)
    await admin.alter([("ip", "::1")], [Change("connection_creation_rate", None)], False)
    assert heard == [("<default>", 5), ("::1", 6), ("::1", None)]


async def test_the_entities_with_quotas_are_limited(store: EmbeddedStore) -> None:
    admin = QuotaAdmin(store, LocalConfigs(store), ClientQuotas(), most=5)
    await admin.load()
    assert await set_(admin, [("user", "a")], producer_byte_rate=1) == 0
    assert await set_(admin, [("ip", "10.0.0.1")], connection_creation_rate=1) == 0
    assert await set_(admin, [("client-id", "c" * 1000)], producer_byte_rate=1) == ErrorCode.POLICY_VIOLATION
    assert await set_(admin, [("client-id", "c" * 600)], producer_byte_rate=1) == 0
    for validates in (True, False):
        outcome = await admin.alter([("user", "b")], [Change(PRODUCE, 1)], validates)
        assert outcome.error is ErrorCode.POLICY_VIOLATION
        assert "quotas for 5 users" in (outcome.message or "")
    assert len(described(admin)) == 3
    assert await set_(admin, [("user", "a")], producer_byte_rate=2, consumer_byte_rate=2) == 0, "is there"
    assert (await admin.alter([("user", "b")], [Change(PRODUCE, None)], False)).error is ErrorCode.NONE
    assert (
        await admin.alter([("user", "a")], [Change(PRODUCE, None), Change(FETCH, None)], False)
    ).error is ErrorCode.NONE
    assert await set_(admin, [("user", "b")], producer_byte_rate=1) == 0
