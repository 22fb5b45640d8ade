"""Connections of one broker to another."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable

import pytest
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
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        peers.set_address(1, "127.0.0.1", server.sockets[0].getsockname()[1])
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
        with pytest.raises(PeerTimeoutError, match=r"did not answer MetadataRequest within 0.2 s"):
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
