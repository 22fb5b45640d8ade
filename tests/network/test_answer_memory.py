"""Answers that clients don't take: what they hold in memory is bounded."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from tests.network.serving import client, framed, serving
from tests.network.test_edges import Full, connection_on
from tests.support.clock import FakeClock

from ottla_broker.network.account import SHORTAGE_BYTES, SHORTAGE_SECONDS
from ottla_broker.network.answer_memory import SMALL_ANSWERS, AnswerMemory
from ottla_broker.network.answers import QUEUED_RESPONSE_BYTES
from ottla_broker.network.connection import Connection
from ottla_broker.network.pending_response import PendingResponse
from ottla_broker.network.service import Reply

MiB = 1024 * 1024


class Reader:
    """A connection whose client takes what the test says."""

    def __init__(self, memory: AnswerMemory, size: int) -> None:
        self.memory = memory
        self.taken = 0
        self.closed = False
        memory.hold(self, size)

    def close(self, reason: str | None) -> None:
        self.closed = True
        self.memory.hold(self, 0)


def test_those_that_read_nothing_are_closed_while_memory_is_short() -> None:
    clock = FakeClock()
    memory = AnswerMemory(100, clock)
    stuck, slow, quick = Reader(memory, 40), Reader(memory, 40), Reader(memory, 40)
    slow.taken, quick.taken = 1, SHORTAGE_BYTES
    clock.advance(SHORTAGE_SECONDS)
    assert (stuck.closed, slow.closed, quick.closed) == (True, False, False)
    assert memory.used == 80
    memory.hold(quick, 90)
    clock.advance(SHORTAGE_SECONDS)
    assert (slow.closed, quick.closed) == (True, False)
    clock.advance(10 * SHORTAGE_SECONDS)
    assert not clock.pending


def test_those_that_read_quickly_are_closed_only_beyond_twice_the_bound() -> None:
    clock = FakeClock()
    memory = AnswerMemory(100, clock)
    small, large = Reader(memory, 80), Reader(memory, 110)
    for _ in range(3):
        small.taken += SHORTAGE_BYTES
        large.taken += SHORTAGE_BYTES
        clock.advance(SHORTAGE_SECONDS)
    assert not small.closed
    assert not large.closed
    memory.hold(small, 100)
    clock.advance(0)
    assert (small.closed, large.closed) == (False, True)


async def test_clients_that_read_nothing_leave_memory_for_the_others() -> None:
    answer = framed(bytes(24 * MiB))

    def handle(connection: Connection, frame: memoryview) -> Reply:
        return {b"much": [answer], b"some": [framed(bytes(MiB))]}.get(bytes(frame), [framed(b"little")])

    async with serving(handle, memory=16 * MiB) as acceptor, AsyncExitStack() as stack:
        hoarders = [await stack.enter_async_context(client(acceptor)) for _ in range(4)]
        for one in hoarders:
            one.writer.transport.pause_reading()  # type: ignore[attr-defined]
            one.send(b"much")
        other = await stack.enter_async_context(client(acceptor))
        [memory] = {each.memory.answers for each in acceptor.processors}
        while memory.used > 2 * memory.limit or not memory._sizes:
            other.send(b"x")
            assert await other.receive() == b"little"
        assert len(memory._sizes) < len(hoarders)
        other.send(b"some")
        assert len(await other.receive()) == MiB
    assert memory.used == 0


def test_answers_behind_others_are_counted() -> None:
    first, second = PendingResponse(), PendingResponse()
    answers: list[Any] = [first, second, [bytes(2 * SMALL_ANSWERS)]]
    connection = connection_on(Full(framed(b"a") + framed(b"b") + framed(b"c")), lambda *_: answers.pop(0))
    connection.processor.loop.add_writer = lambda *_: None  # type: ignore[method-assign]
    connection.processor.loop.remove_writer = lambda *_: None  # type: ignore[method-assign]
    connection.reader.on_readable()
    memory = connection.processor.memory.answers
    assert memory.used == 2 * SMALL_ANSWERS
    second.complete([bytes(SMALL_ANSWERS)])
    assert memory.used == 3 * SMALL_ANSWERS
    first.complete([bytes(10)])
    assert memory.used == 3 * SMALL_ANSWERS + 10
    connection.close(None)
    assert memory.used == 0


def test_nothing_is_read_while_large_answers_wait_behind_a_pending_one() -> None:
    first, second = PendingResponse(), PendingResponse()
    answers: list[Any] = [first, second]
    connection = connection_on(Full(framed(b"a") + framed(b"b")), lambda *_: answers.pop(0))
    connection.processor.loop.add_writer = lambda *_: None  # type: ignore[method-assign]
    connection.processor.loop.remove_writer = lambda *_: None  # type: ignore[method-assign]
    connection.reader.on_readable()
    assert connection.reader.reading
    second.complete([bytes(QUEUED_RESPONSE_BYTES + 1)])
    assert not connection.reader.reading
    assert connection.answers.queued_bytes == QUEUED_RESPONSE_BYTES + 1
    first.complete(None)
    assert connection.answers.queued_bytes == 0
    connection.close(None)
