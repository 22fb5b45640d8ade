"""Which quota applies to a client, and how long a client above it waits."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metadata.client_quotas import (
    ClientQuotas,
    QuotaEntity,
    QuotaKind,
    Rate,
    TokenBucket,
    Windows,
    desanitize,
    sanitize,
)
from ottla_broker.store.keys import DEFAULT_ENTITY

PRODUCE = QuotaKind.PRODUCE
ORDER = [
    ("u", "c"),
    ("u", DEFAULT_ENTITY),
    ("u", None),
    (DEFAULT_ENTITY, "c"),
    (DEFAULT_ENTITY, DEFAULT_ENTITY),
    (DEFAULT_ENTITY, None),
    (None, "c"),
    (None, DEFAULT_ENTITY),
]
"""Kafka's order: the first that is set applies."""


@given(st.sets(st.sampled_from(range(len(ORDER)))))
def test_the_most_specific_quota_applies(chosen: set[int]) -> None:
    quotas = ClientQuotas()
    for number in chosen:
        quotas.set(QuotaEntity(*ORDER[number]), {PRODUCE.value: number})
    limit = quotas.limit(PRODUCE, "u", "c")
    assert (None if limit is None else limit.rate) == (min(chosen) if chosen else None)
    assert quotas.enabled is bool(chosen)
    for number in chosen:
        quotas.set(QuotaEntity(*ORDER[number]), {})
    assert not quotas.enabled
    assert quotas.limit(PRODUCE, "u", "c") is None


def test_who_shares_a_quota() -> None:
    def shared(entity: QuotaEntity) -> set[QuotaEntity]:
        quotas = ClientQuotas()
        quotas.set(entity, {PRODUCE.value: 1})
        limits = (quotas.limit(PRODUCE, user, client) for user, client in product("ab", "xy"))
        return {limit.shared_by for limit in limits if limit is not None}

    assert shared(QuotaEntity("a", None)) == {QuotaEntity("a", None)}
    assert shared(QuotaEntity(DEFAULT_ENTITY, None)) == {QuotaEntity("a", None), QuotaEntity("b", None)}
    assert shared(QuotaEntity(None, "x")) == {QuotaEntity(None, "x")}
    assert len(shared(QuotaEntity(DEFAULT_ENTITY, DEFAULT_ENTITY))) == 4


def test_a_name_like_the_default_is_no_default() -> None:
    quotas = ClientQuotas()
    quotas.set(QuotaEntity(DEFAULT_ENTITY, None), {PRODUCE.value: 5})
    quotas.set(QuotaEntity(sanitize(DEFAULT_ENTITY), None), {PRODUCE.value: 6})
    one, other = quotas.limit(PRODUCE, DEFAULT_ENTITY, ""), quotas.limit(PRODUCE, "u", "")
    assert one is not None
    assert other is not None
    assert (one.rate, other.rate) == (6, 5)


@pytest.mark.parametrize(
    ("name", "path"), [("CN=a, O=b/c", "CN%3Da%2C%20O%3Db%2Fc"), ("a*b+c~d", "a%2Ab%2Bc~d"), ("ü", "%C3%BC")]
)
def test_names_in_paths_are_kafkas(name: str, path: str) -> None:
    assert sanitize(name) == path
    assert desanitize(path) == name


def test_a_rate_is_kafkas() -> None:
    """Kafka's ClientQuotaManagerTest.testQuotaViolation: 10 windows and the current one, quota 500."""
    rate, now = Rate(11, 1000), 0
    for _ in range(10):
        rate.record(400, now)
        assert rate.throttle_ms(500, now) == 0
        now += 1000
    # 600 more than the quota allows, after half a window.
    now += 500
    rate.record(2300, now)
    assert rate.throttle_ms(500, now) == 2100


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 10_000)), min_size=1, max_size=30))
def test_who_waits_as_long_as_told_is_within_the_quota(steps: list[tuple[int, int]]) -> None:
    quotas, now = ClientQuotas(Windows(11, 1000)), 0
    quotas.set(QuotaEntity(None, DEFAULT_ENTITY), {PRODUCE.value: 1000})
    total = 0
    for pause, size in steps:
        now += pause
        total += size
        now += quotas.record(PRODUCE, "u", "c", size, now)
    # The windows let a burst of their length through.
    assert total <= 1000 * (now / 1000 + 11) + 10_000


def test_the_share_of_time_is_limited_a_window_at_a_time() -> None:
    quotas = ClientQuotas()
    quotas.set(QuotaEntity("u", None), {QuotaKind.REQUEST.value: 1})
    assert quotas.record(QuotaKind.REQUEST, "u", "c", 1000, 0) == 1000
    assert quotas.record(QuotaKind.REQUEST, "other", "c", 1000, 0) == 0


def test_a_quota_of_zero_holds_for_the_windows() -> None:
    quotas = ClientQuotas()
    quotas.set(QuotaEntity("u", None), {PRODUCE.value: 0, QuotaKind.MUTATION.value: 0})
    assert quotas.record(PRODUCE, "u", "c", 1, 0) == 11_000
    mutations = quotas.mutations("u", "c")
    assert mutations is not None
    assert mutations.accept(1, 0, strict=True)
    assert not mutations.accept(1, 0, strict=True)


def test_a_fetch_gets_what_the_windows_allow() -> None:
    quotas = ClientQuotas()
    assert quotas.most_bytes("u", "c") is None
    quotas.set(QuotaEntity("u", None), {QuotaKind.FETCH.value: 1000})
    assert quotas.most_bytes("u", "c") == 10_000


def test_a_bucket_takes_a_burst_and_then_refuses() -> None:
    """KIP-599: a burst of 11 s; once it is used up nothing until the debt is paid."""
    quotas = ClientQuotas()
    quotas.set(QuotaEntity("u", None), {QuotaKind.MUTATION.value: 2})
    first = quotas.mutations("u", "c")
    assert first is not None
    assert first.accept(30, 0, strict=True)
    assert first.throttle_ms == 0
    second = quotas.mutations("u", "c")
    assert second is not None
    assert not second.accept(1, 0, strict=True)
    assert second.throttle_ms == 4000
    assert not second.accept(1, 3999, strict=True)
    assert second.accept(1, 4000, strict=True)
    old = quotas.mutations("u", "c")
    assert old is not None
    assert old.accept(10, 4000, strict=False)
    assert old.throttle_ms == 5500


def test_a_bucket_holds_no_more_than_a_burst() -> None:
    bucket = TokenBucket(11, 1000)
    assert bucket.tokens(5, 10**9) == 55
    bucket.take(50, 5, 10**9)
    assert bucket.tokens(5, 10**9 + 1000) == 10


def test_rates_of_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla_broker.metadata.client_quotas._MOST_METERS", 10)
    monkeypatch.setattr("ottla_broker.metadata.client_quotas._MOST_RESOLVED", 10)
    quotas = ClientQuotas()
    quotas.set(QuotaEntity(None, DEFAULT_ENTITY), {PRODUCE.value: 1, QuotaKind.MUTATION.value: 1})
    for number in range(100):
        quotas.record(PRODUCE, "u", f"c{number}", 1, 0)
        quotas.mutations("u", f"c{number}")
    assert len(quotas._rates) == len(quotas._buckets) == 10
    assert len(quotas._resolved) <= 10


def test_long_names_share_what_their_beginning_has() -> None:
    quotas = ClientQuotas()
    quotas.set(QuotaEntity(None, DEFAULT_ENTITY), {QuotaKind.PRODUCE.value: 1.0})
    for number in range(100):
        quotas.record(QuotaKind.PRODUCE, "alice", "c" * 30_000 + str(number), 1000, 1)
    assert quotas.record(QuotaKind.PRODUCE, "alice", "c" * 30_000, 1, 1) > 0
    assert len(quotas._rates) == 1
    assert sum(len(str(key)) for key in quotas._resolved) < 5_000
