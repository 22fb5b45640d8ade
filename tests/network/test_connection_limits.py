"""Limits of connections: in all, by listener and by address, and how fast they may come."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.network.serving import client, echo, serving
from tests.support.clock import FakeClock

from ottla_broker.config.model import INT_MAX
from ottla_broker.metadata.client_quotas import Windows
from ottla_broker.network.connection_quotas import ConnectionQuotas
from ottla_broker.network.connection_rates import ConnectionRates

INSIDE, OUTSIDE = "INSIDE", "OUTSIDE"


def test_a_listener_has_its_own_limit() -> None:
    quotas = ConnectionQuotas(3, INT_MAX, {})
    quotas.limit_listener(OUTSIDE, 1)
    assert quotas.admit(OUTSIDE, "a")
    assert not quotas.has_room(OUTSIDE)
    assert quotas.has_room(INSIDE)
    quotas.limit_listener(OUTSIDE, 2)
    assert quotas.has_room(OUTSIDE)
    assert quotas.admit(OUTSIDE, "a")
    assert quotas.admit(INSIDE, "a")
    assert not quotas.has_room(INSIDE)


def test_other_brokers_get_in_beyond_the_total() -> None:
    quotas = ConnectionQuotas(2, INT_MAX, {})
    quotas.protected = INSIDE
    closed = []

    def close() -> bool:
        closed.append(quotas.count)
        quotas.leave(OUTSIDE, "a")
        return True

    quotas.close_idlest = close
    for _ in range(2):
        assert quotas.admit(OUTSIDE, "a")
    assert not quotas.has_room(OUTSIDE)
    assert quotas.has_room(INSIDE)
    assert quotas.admit(INSIDE, "b")
    assert (closed, quotas.count) == ([3], 2)
    quotas.limit_listener(INSIDE, 1)
    assert not quotas.has_room(INSIDE)
    quotas.update(1, INT_MAX, {})
    assert (closed, quotas.count) == ([3, 2], 1)


@given(
    st.lists(
        st.tuples(st.sampled_from([INSIDE, OUTSIDE]), st.sampled_from("abc"), st.booleans()), max_size=40
    )
)
def test_counts_never_drift(steps: list[tuple[str, str, bool]]) -> None:
    quotas = ConnectionQuotas(4, 2, {"c": 1})
    quotas.limit_listener(OUTSIDE, 2)
    open_ones: list[tuple[str, str]] = []
    for listener, ip, leaves in steps:
        if leaves and (listener, ip) in open_ones:
            open_ones.remove((listener, ip))
            quotas.leave(listener, ip)
        elif quotas.has_room(listener) and quotas.admit(listener, ip):
            open_ones.append((listener, ip))
        assert quotas.count == len(open_ones) <= 4
        assert sum(each == OUTSIDE for each, _ in open_ones) <= 2
        assert all(
            sum(other == each for _, other in open_ones) <= (1 if each == "c" else 2) for each in "abc"
        )
    for each in open_ones:
        quotas.leave(*each)
    assert quotas.count == 0


def test_a_listener_has_its_own_rate() -> None:
    clock = FakeClock()
    rates = ConnectionRates(clock, 100, Windows(11, 1000))
    rates.by_listener[OUTSIDE] = 1
    rates.protected = INSIDE
    slow = [rates.delay(OUTSIDE) for _ in range(20)]
    assert slow[0] == 0.0
    assert slow[-1] > 0.0
    assert all(rates.delay(INSIDE) == 0.0 for _ in range(5000)), "the total doesn't hold for other brokers"
    assert rates.delay("THIRD") == 0.0
    del rates.by_listener[OUTSIDE]
    assert rates.delay(OUTSIDE) == 0.0


def test_an_address_has_its_own_rate() -> None:
    clock = FakeClock()
    rates = ConnectionRates(clock, INT_MAX, Windows(11, 1000))
    rates.set_ip("a", 10)
    admitted = 0
    for _ in range(10_000):
        admitted += not rates.refused_until("a")
        clock.advance(0.003)
    # 30 seconds; the first windows may borrow from those before.
    assert 300 <= admitted <= 360
    until = rates.refused_until("a")
    assert clock.monotonic() * 1000 < until <= clock.monotonic() * 1000 + 1000
    assert not rates.refused_until("b")
    rates.set_ip("a", 1000)
    assert not rates.refused_until("a")


async def test_a_full_listener_waits_for_a_place() -> None:
    quotas = ConnectionQuotas(10, 10, {})
    quotas.limit_listener("PLAINTEXT", 1)
    async with serving(echo, quotas=quotas) as acceptor, client(acceptor) as a:
        a.send(b"a")
        assert await a.receive() == b"a"
        async with client(acceptor) as b:
            b.send(b"b")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(b.reader.readexactly(1), 0.05)
            quotas.limit_listener("PLAINTEXT", 2)
            assert await b.receive() == b"b"
