"""The threads of handshakes and logins: who comes next when one address floods."""

from __future__ import annotations

import asyncio
from threading import Event, Timer

import pytest

from ottla_broker.network.login_threads import THREADS, LoginThreads

_AHEAD = 2 * THREADS


async def test_addresses_take_turns() -> None:
    threads = LoginThreads()
    gate, done = Event(), []

    def work(name: str) -> str:
        gate.wait(60)
        done.append(name)
        return name

    try:
        flood = [threads.run("flood", work, f"f{number}") for number in range(50)]
        others = [threads.run(host, work, host) for host in ("one", "other", "one")]
        gate.set()
        assert await asyncio.wait_for(asyncio.gather(*others), 60) == ["one", "other", "one"]
        assert max(map(done.index, ("one", "other"))) <= _AHEAD + 2 * THREADS
        assert len(await asyncio.wait_for(asyncio.gather(*flood), 60)) == 50
    finally:
        threads.close()


async def test_what_has_not_begun_can_be_withdrawn() -> None:
    threads = LoginThreads()
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
    threads = LoginThreads()
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
