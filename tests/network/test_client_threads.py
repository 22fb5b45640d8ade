"""The threads of what takes long: who comes next when one client floods."""

from __future__ import annotations

import asyncio
from threading import Event, Timer

import pytest

from ottla_broker.client_threads import THREADS, ClientThreads
from ottla_broker.network.service import client_at

_AHEAD = 2 * THREADS


@pytest.mark.parametrize(
    ("flood", "others"),
    [("10.0.0.1", ("10.0.0.2", "10.0.0.3")), ("2001:db8:0:1::{}", ("2001:db8:0:2::1", "2001:db8:0:3::1"))],
)
async def test_addresses_take_turns(flood: str, others: tuple[str, str]) -> None:
    """A host has a whole /64 of IPv6."""
    one, other = others
    threads = ClientThreads()
    gate, done = Event(), []

    def work(name: str) -> str:
        gate.wait(60)
        done.append(name)
        return name

    try:
        flooding = [threads.run(client_at(flood.format(number)), work, f"f{number}") for number in range(50)]
        waiting = [threads.run(client_at(host), work, host) for host in (one, other, one)]
        gate.set()
        assert await asyncio.wait_for(asyncio.gather(*waiting), 60) == [one, other, one]
        assert max(map(done.index, others)) <= _AHEAD + 2 * THREADS
        assert len(await asyncio.wait_for(asyncio.gather(*flooding), 60)) == 50
    finally:
        threads.close()


async def test_what_has_not_begun_can_be_withdrawn() -> None:
    threads = ClientThreads()
    gate, begun = Event(), []

    def work(number: int) -> None:
        begun.append(number)
        gate.wait(60)

    futures = [threads.run("host", work, number) for number in range(3 * _AHEAD)]
    for future in futures:
        threads.withdraw(future)
    gate.set()
    await asyncio.wait_for(asyncio.gather(*futures[:_AHEAD]), 60)
    assert begun == list(range(_AHEAD))
    assert all(future.cancelled() for future in futures[_AHEAD:])
    threads.close()


async def test_errors_and_the_end() -> None:
    threads = ClientThreads()
    gate = Event()
    with pytest.raises(ZeroDivisionError):
        await threads.run("host", lambda: 1 // 0)
    running = [threads.run("host", gate.wait, 60) for _ in range(_AHEAD)]
    waiting = threads.run("host", int)
    Timer(0, gate.set).start()
    threads.close()
    assert waiting.cancelled()
    await asyncio.wait(running, timeout=60)
    assert all(future.done() for future in running)
