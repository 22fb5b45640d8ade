"""Connections that wait for another turn: who comes next, and how long the others wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from tests.network.serving import client, echo, exchange_at_once, serving
from tests.support.clock import FakeClock

from ottla_broker.network import backlog as backlog_module
from ottla_broker.network import reader as reader_module
from ottla_broker.network.backlog import LATE_SECONDS, MANY, MOST_SECONDS, TURN_SECONDS, Backlog
from ottla_broker.network.connection import Connection
from ottla_broker.network.service import ANONYMOUS, Principal, Reply

_ALICE = Principal("User", "alice")


class World:
    """A backlog whose connections take a turn each time, and want another one."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.calls: list[Callable[[], None]] = []
        loop: Any = SimpleNamespace(call_soon=self.calls.append)
        self.backlog = Backlog(loop, self.clock)
        self.served: list[str] = []

    def add(self, name: str, host: str = "flood", principal: Principal = ANONYMOUS, turns: int = 1) -> None:
        def serve() -> None:
            nonlocal turns
            self.clock.time += TURN_SECONDS
            self.served.append(name)
            turns -= 1
            if turns:
                self.backlog.add(connection)

        connection: Any = SimpleNamespace(client_host=host, principal=principal, serve_held=serve)
        self.backlog.add(connection)

    def turn(self) -> list[str]:
        """The connections that a turn of the event loop serves."""
        self.served = []
        calls, self.calls[:] = self.calls[:], []
        for call in calls:
            call()
        return self.served


def test_turns_go_round_clients_and_then_round_their_connections() -> None:
    world = World()
    for number in range(3):
        world.add(f"f{number}", turns=3)
    world.add("o", "other", turns=2)
    world.add("a", principal=_ALICE, turns=2)
    order = [name for _ in range(13) for name in world.turn()]
    assert order == ["f0", "o", "a", "f1", "o", "a", "f2", "f0", "f1", "f2", "f0", "f1", "f2"]
    assert not world.calls


def test_a_turn_takes_as_long_as_everything_else_has_taken_but_serves_none_twice() -> None:
    world = World()
    for number in range(3 * MANY):
        world.add(str(number), turns=5)
    assert world.backlog.is_long
    world.clock.time += 3.5 * TURN_SECONDS
    assert len(world.turn()) == 4
    assert len(world.turn()) == 1
    world.clock.time += 1
    assert len(world.turn()) <= MOST_SECONDS / TURN_SECONDS + 1

    alone = World()
    alone.add("alone", turns=5)
    alone.clock.time += 1
    assert alone.turn() == ["alone"]
    assert not alone.backlog.is_long


def test_a_late_turn_serves_one_connection_of_each_client() -> None:
    world = World()
    flood: Any = SimpleNamespace(client_host="flood", principal=ANONYMOUS)
    other: Any = SimpleNamespace(client_host="flood", principal=_ALICE)

    def waits(connection: Any) -> bool:
        """A readable connection, which takes a millisecond if it is served."""
        now = world.clock.time
        waiting = now > world.backlog.late_after and not world.backlog.admit(connection, now)
        world.clock.time += 0 if waiting else 0.001
        return waiting

    world.turn()
    in_time = round(LATE_SECONDS / 0.001)
    for _ in range(3):
        served = [not waits(flood) for _ in range(50)]
        assert sum(served) <= in_time + 3
        assert not any(served[in_time + 3 :])
        assert not waits(other), "of another client"
        assert waits(other)
        world.turn()
    world.turn()
    assert not world.calls, "no turn is scheduled while turns are short"


def test_a_late_turn_has_a_bound_however_many_clients_there_are() -> None:
    world = World()
    served = 0

    def arrive(host: str) -> None:
        """A client's bytes arrive; to serve them takes a millisecond."""
        nonlocal served
        connection: Any = SimpleNamespace(client_host=host, principal=ANONYMOUS)
        now = world.clock.time
        if now > world.backlog.late_after and not world.backlog.admit(connection, now):
            world.add(host, host)
        else:
            served += 1
            world.clock.time += TURN_SECONDS

    clients = 200
    for number in range(clients):
        arrive(str(number))
    assert served <= (LATE_SECONDS + MOST_SECONDS) / TURN_SECONDS + 2
    waiting: list[str] = []
    while turn := world.turn():
        assert len(turn) <= MOST_SECONDS / TURN_SECONDS + 1
        waiting += turn
        world.clock.time += LATE_SECONDS
    assert sorted(map(int, waiting)) == list(range(served, clients))


def test_the_others_go_on_after_a_defect() -> None:
    world = World()
    defective: Any = SimpleNamespace(client_host="host", principal=ANONYMOUS, serve_held=lambda: 1 // 0)
    world.backlog.add(defective)
    world.add("other")
    with pytest.raises(ZeroDivisionError):
        world.turn()
    assert world.turn() == ["other"]


async def test_a_flood_of_many_connections_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their requests are served in turns of the event loop in which the bystander's comes first."""
    for module in (backlog_module, reader_module):
        monkeypatch.setattr(module, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(backlog_module, "MOST_SECONDS", 0.0)
    floods, each = 2 * MANY, 20
    served: list[bytes] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        served.append(bytes(frame))
        if len(served) == floods * each // 2:
            other.send(b"o")
        return echo(connection, frame)

    async with AsyncExitStack() as stack:
        acceptor = await stack.enter_async_context(serving(handle))
        other = await stack.enter_async_context(client(acceptor))
        other.send(b"hello")
        await other.receive()
        served.clear()
        flooding = [await stack.enter_async_context(client(acceptor)) for _ in range(floods)]
        for one in flooding:
            one.send(*[b"f"] * each)
        await other.receive()
        assert served.index(b"o") <= floods * each // 2 + 4
        for one in flooding:
            for _ in range(each):
                await one.receive()


async def test_connections_that_wait_because_the_loop_is_late_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog_module, "LATE_SECONDS", -1.0)
    async with AsyncExitStack() as stack:
        acceptor = await stack.enter_async_context(serving(echo))
        await exchange_at_once([await stack.enter_async_context(client(acceptor)) for _ in range(8)])
