"""Connections of one broker to another."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.listening import Listener
from tests.support.processes import BrokerProcess

from ottla_broker.clock import SystemClock
from ottla_broker.network.peer import (
    PeerConnection,
    PeerError,
    Peers,
    PeerTimeoutError,
    PeerUnreachableError,
    Purpose,
)
from ottla_broker.network.resolver import Resolver
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.fetch import FetchRequest
from ottla_protocol.messages.metadata import MetadataRequest


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    made = Peers("broker-7", SystemClock(asyncio.get_running_loop()), connect_timeout=60.0)
    yield made
    await made.close()


async def test_a_broker_is_asked_and_answers(broker: BrokerProcess, peers: Peers) -> None:
    peers.set_address(1, "127.0.0.1", broker.port)
    answer = await peers.request(1, MetadataRequest(topics=[]), timeout=60)
    assert answer.cluster_id
    first = await peers.connection(1, Purpose.OTHER, 60)
    assert first is await peers.connection(1, Purpose.OTHER, 60)
    assert first is not await peers.connection(1, Purpose.CONTROL, 60)
    assert first.version_of(ApiKey.METADATA) >= 9


async def test_those_who_ask_at_once_share_a_connection(broker: BrokerProcess, peers: Peers) -> None:
    peers.set_address(1, "127.0.0.1", broker.port)
    made = await asyncio.gather(*(peers.connection(1, Purpose.CONTROL, 60) for _ in range(5)))
    assert len(set(made)) == 1


async def test_a_port_where_nobody_listens_is_told_as_refused(peers: Peers) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        peers.set_address(1, "127.0.0.1", taken.getsockname()[1])
        for _ in range(2):
            with pytest.raises(PeerUnreachableError) as caught:
                await peers.request(1, MetadataRequest(), timeout=60)
            assert caught.value.refused
    with pytest.raises(PeerUnreachableError, match="address of broker 2 is not known"):
        await peers.request(2, MetadataRequest(), timeout=60)


class Steps(SystemClock):
    """A clock whose time is the test's."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.now = 1000.0
        self.monotonic = lambda: self.now


@pytest.mark.parametrize(
    "why", [socket.gaierror(socket.EAI_NONAME, "unknown"), OSError(errno.EHOSTUNREACH, "no route")]
)
async def test_a_machine_that_has_vanished_refuses_after_a_while(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, why: OSError
) -> None:
    clock = Steps()
    peers = Peers("broker-7", clock, connect_timeout=60.0)
    answers: list[list[str] | OSError] = []

    async def find(self: Resolver, host: str) -> list[str]:
        answer = answers.pop(0) if answers else why
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def refused() -> bool:
        # Past the time for which one that failed is left alone.
        clock.now += 0.6
        with pytest.raises(PeerUnreachableError) as caught:
            await peers.connection(1, Purpose.WATCH, 60)
        return caught.value.refused

    monkeypatch.setattr(Resolver, "find", find)
    peers.set_address(1, "broker-1", broker.port)
    # Who has never been there has not vanished.
    assert [await refused() for _ in range(4)] == [False] * 4
    answers.append(["127.0.0.1"])
    clock.now += 2
    (await peers.connection(1, Purpose.WATCH, 60)).close()
    assert [await refused() for _ in range(4)] == [False, False, True, True]
    # Whatever else is met says that there is something.
    answers.append(socket.gaierror(socket.EAI_AGAIN, "the name server is silent"))
    assert [await refused() for _ in range(4)] == [False, False, False, True]
    answers.append(["127.0.0.1"])
    clock.now += 2
    (await peers.connection(1, Purpose.WATCH, 60)).close()
    assert not await refused()
    await peers.close()


async def test_all_addresses_of_a_name_are_tried(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(self: Resolver, host: str) -> list[str]:
        return ["127.77.0.1", "127.0.0.1"]

    monkeypatch.setattr(Resolver, "find", find)
    opened = await PeerConnection.open(
        "broker-1",
        broker.port,
        client_id="x",
        timeout=60,
        clock=SystemClock(asyncio.get_running_loop()),
    )
    opened.close()


async def test_a_name_is_looked_up_once_for_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    release, asked = threading.Event(), []

    def look_up(host: str, *_: object, **__: object) -> list[Any]:
        asked.append((host, threading.current_thread().daemon))
        release.wait(60)
        if host == "unknown":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [
            (0, 0, 0, "", ("10.0.0.1", 0)),
            (0, 0, 0, "", ("10.0.0.1", 0)),
            (0, 0, 0, "", ("10.0.0.2", 0)),
        ]

    resolver = Resolver()
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", look_up)
        impatient = [asyncio.ensure_future(asyncio.wait_for(resolver.find("slow"), 0.01)) for _ in range(20)]
        results = await asyncio.gather(*impatient, return_exceptions=True)
        assert {type(each) for each in results} == {TimeoutError}
        waiting = [asyncio.ensure_future(resolver.find(host)) for host in ("slow", "slow", "unknown")]
        await asyncio.sleep(0)
        release.set()
        first, second, third = await asyncio.gather(*waiting, return_exceptions=True)
    assert first == second == ["10.0.0.1", "10.0.0.2"]
    assert isinstance(third, socket.gaierror)
    assert asked == [("slow", True), ("unknown", True)]
    assert await resolver.find("::1") == ["::1"]


async def test_a_peer_that_says_nothing_is_given_up(peers: Peers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        peers.set_address(1, "127.0.0.1", silent.getsockname()[1])
        with pytest.raises(PeerUnreachableError, match=r"not reached within 0.2 s") as caught:
            await peers.request(1, MetadataRequest(), timeout=0.2)
        assert not caught.value.refused


async def test_whatever_is_no_broker_is_named(peers: Peers) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with Listener(serve) as server:
        peers.set_address(1, "127.0.0.1", server.port)
        with pytest.raises(PeerUnreachableError, match="web server"):
            await peers.request(1, MetadataRequest(), timeout=60)


async def test_requests_under_way_hear_of_a_broker_that_dies(
    own_broker: Callable[..., BrokerProcess], peers: Peers
) -> None:
    broker = own_broker()
    peers.set_address(1, "127.0.0.1", broker.port)
    connection = await peers.connection(1, Purpose.CONTROL, 60)
    ends: list[PeerError | None] = []
    connection.on_close = ends.append
    waiting = connection.submit(FetchRequest(max_wait_ms=60_000, min_bytes=1), timeout=60)
    broker.kill()
    with pytest.raises(PeerError, match=r"127.0.0.1:\d+ broke:") as caught:
        await waiting
    assert not isinstance(caught.value, PeerTimeoutError)
    assert connection.closed
    assert len(ends) == 1
    with pytest.raises(PeerError):
        connection.submit(MetadataRequest(), timeout=1)


async def test_an_answer_that_does_not_come_in_time_ends_the_connection(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    clock = SystemClock(asyncio.get_running_loop())
    broker = own_broker()
    connection = await PeerConnection.open("127.0.0.1", broker.port, client_id="t", timeout=60, clock=clock)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        with pytest.raises(PeerTimeoutError, match=r"did not answer Metadata within 0.2 s"):
            await connection.submit(MetadataRequest(), timeout=0.2)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert connection.closed
    await connection.wait_closed()


async def test_a_new_address_ends_the_old_connections(broker: BrokerProcess, peers: Peers) -> None:
    peers.set_address(1, "127.0.0.1", broker.port)
    connection = await peers.connection(1, Purpose.OTHER, 60)
    peers.set_address(1, "127.0.0.1", broker.port)
    assert not connection.closed
    peers.set_address(1, "localhost", broker.port)
    assert connection.closed
    assert await peers.request(1, MetadataRequest(topics=[]), timeout=60)


async def test_requests_for_a_purpose_are_given_up(
    own_broker: Callable[..., BrokerProcess], peers: Peers
) -> None:
    broker = own_broker()
    peers.set_address(1, "127.0.0.1", broker.port)
    kept = await peers.connection(1, Purpose.CONTROL, 60)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        asked = asyncio.ensure_future(
            peers.request(1, MetadataRequest(topics=[]), timeout=60, purpose=Purpose.MARKERS)
        )
        await asyncio.sleep(0)
        peers.hang_up(1, (Purpose.MARKERS, Purpose.VERIFICATION))
        with pytest.raises(PeerError):
            await asked
        assert not kept.closed
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert await peers.request(1, MetadataRequest(topics=[]), timeout=60, purpose=Purpose.MARKERS)
