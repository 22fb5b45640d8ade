"""Produce 0 to 2, called directly: what is converted at once and what on a thread, in which order, and how much."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.badinput.requests import produce_request
from tests.support.handlers import Client, awaited, handled, request_context, services
from tests.support.log_dirs import World

from ottla_broker.clock import SystemClock
from ottla_broker.fetch.conversions import Conversions
from ottla_broker.handlers import produce
from ottla_broker.network.pending_response import CloseConnection
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla_protocol.records.compression import GZIP
from ottla_protocol.records.formats import decode_any, iter_headers
from ottla_protocol.records.message_set import encode_messages
from ottla_protocol.records.record import Record

T = 1_700_000_000_000


def messages(name: bytes, count: int, size: int = 100, codec: int = 0) -> bytes:
    return encode_messages([Record(n, T, name, bytes(size)) for n in range(count)], 1, codec=codec)


class Connection(Client):
    """Says whether it is read from."""

    def __init__(self, name: str, held: set[str]) -> None:
        super().__init__(id=name)
        self.held = held

    def begin_long(self) -> None:
        assert self.id not in self.held
        self.held.add(self.id)

    def end_long(self) -> None:
        self.held.remove(self.id)


class Broker:
    """Handles requests of a few connections.

    Attributes:
        held: the connections that nothing is read from.
    """

    def __init__(self, world: World, conversions: Conversions) -> None:
        self.held: set[str] = set()
        self.given = services(
            replicas=world.replicas,
            clock=SystemClock(asyncio.get_running_loop()),
            metadata=SimpleNamespace(topic=lambda name: None),
            conversions=conversions,
        )
        self.log = world.replicas.partition("t", 0).log

    def handle(self, data: bytes | None, *, connection: str = "1", acks: int = 1, version: int = 2) -> Any:
        context = request_context(self.given, version, ApiKey.PRODUCE)
        context.connection = Connection(connection, self.held)
        frame = bytearray(produce_request("t", data, acks=acks).encode(version))
        answer = handled(produce, context, ProduceRequest.decode(memoryview(frame), version, 0))
        # The buffer is used for the next request.
        frame[:] = bytes(len(frame))
        return awaited(answer)

    def keys(self) -> list[bytes | None]:
        found = []
        for run in self.log.reader.scan_batches(0):
            for position, header in iter_headers(run):
                assert header.magic == 2
                found.append(decode_any(run, position, header)[0].key)
        return found


@pytest.fixture
async def broker(world: World, conversions: Conversions) -> Broker:
    return Broker(world, conversions)


def outcome(answer: ProduceResponse) -> tuple[int, int]:
    found = answer.responses[0].partition_responses[0]
    return found.error_code, found.base_offset


async def test_few_records_are_converted_at_once(broker: Broker, conversions: Conversions) -> None:
    assert outcome(broker.handle(messages(b"a", 5))) == (0, 0)
    assert outcome(broker.handle(messages(b"b", 5, codec=GZIP))) == (0, 5)
    assert outcome(broker.handle(b"")) == (0, -1)
    assert conversions._for_producers is None


@pytest.mark.parametrize(
    "large", [messages(b"a", 1000), messages(b"a", 3000, codec=GZIP)], ids=["plain", "gzip"]
)
async def test_its_connection_waits_for_a_large_one(broker: Broker, large: bytes) -> None:
    answer = broker.handle(large)
    assert broker.held == {"1"}
    # Another connection doesn't wait.
    assert outcome(broker.handle(messages(b"other", 1), connection="2")) == (0, 0)
    assert outcome(await answer) == (0, 1)
    assert broker.held == set()
    assert broker.keys()[:2] == [b"other", b"a"]


async def test_a_refused_set_does_not_stop_the_next(broker: Broker) -> None:
    large = bytearray(messages(b"a", 1000))
    large[-1] ^= 1
    assert outcome(await broker.handle(bytes(large))) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert outcome(broker.handle(messages(b"b", 1))) == (0, 0)
    with pytest.raises(CloseConnection):
        await broker.handle(bytes(large), acks=0)
    assert broker.handle(messages(b"c", 1), acks=0) is None
    assert broker.held == set()
    assert broker.keys() == [b"b", b"c"]


async def test_replicas_are_waited_for(broker: Broker, world: World) -> None:
    from ottla_broker.replica.leadership import LeaderState

    partition = world.replicas.partition("t", 0)
    assert partition is not None
    partition.lead(LeaderState(0, 1, 1, (1, 2), 1, (1, 2)))
    answer = asyncio.ensure_future(broker.handle(messages(b"a", 1000), acks=-1))
    while broker.log.log_end_offset < 1000:
        await asyncio.sleep(0.001)
    assert not answer.done()
    partition.stop()
    assert outcome(await answer) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_bombs_are_refused(broker: Broker) -> None:
    bomb = encode_messages([Record(0, T, None, bytes(40_000_000))], 1, codec=GZIP)
    assert len(bomb) < 65_536
    assert outcome(await broker.handle(bomb)) == (ErrorCode.MESSAGE_TOO_LARGE, -1)


async def test_a_conversion_stops_with_the_broker(broker: Broker, conversions: Conversions) -> None:
    answer = asyncio.ensure_future(broker.handle(messages(b"a", 20_000)))
    await asyncio.sleep(0)
    conversions.close()
    with pytest.raises(CloseConnection, match="the broker stops"):
        await answer
    assert broker.log.log_end_offset == 0
    assert broker.held == set()
