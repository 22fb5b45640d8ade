"""What goes wrong at the edges: turns of the loop, orders of events, things that end in the middle."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from tests.network.serving import Client, client, echo, framed, serving
from tests.support.clock import FakeClock

from ottla_broker.clock import SystemClock
from ottla_broker.log.files import Files, FileSlice
from ottla_broker.metadata.client_quotas import Windows
from ottla_broker.network import processor as processor_module
from ottla_broker.network.acceptor import open_listener
from ottla_broker.network.account import SHORTAGE_SECONDS
from ottla_broker.network.answers import QUEUED_RESPONSE_BYTES
from ottla_broker.network.connection import Connection
from ottla_broker.network.connection_quotas import ConnectionQuotas
from ottla_broker.network.connection_rates import ConnectionRates
from ottla_broker.network.pending_response import PendingResponse
from ottla_broker.network.processor import Processor, SocketSettings
from ottla_broker.network.reader import FRAME_SECONDS, REQUESTS_PER_TURN
from ottla_broker.network.request_memory import (
    SMALL_FRAME,
    BufferPool,
    RequestMemory,
)
from ottla_broker.network.service import Reply
from ottla_broker.network.writer import COPIED_BYTES
from ottla_broker.tasks import SLICE_SECONDS


class Pieces:
    """A socket that has the given pieces to read, and nothing after them yet."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)
        self.sent: list[bytes] = []

    def fileno(self) -> int:
        return 99

    def recv_into(self, buffer: memoryview, size: int = 0) -> int:
        if not self.pieces:
            raise BlockingIOError
        piece = self.pieces.pop(0)
        buffer[: len(piece)] = piece
        return len(piece)

    def send(self, data: bytes) -> int:
        self.sent.append(bytes(data))
        return len(data)

    def close(self) -> None:
        self.pieces = [b""]


def connection_on(sock: Pieces, handle: Any, scratch: int = 64) -> Connection:
    loop = SimpleNamespace(
        add_reader=lambda *_: None, remove_reader=lambda *_: None, call_soon=lambda f, *a: f(*a)
    )
    processor: Any = SimpleNamespace(
        loop=loop,
        clock=SimpleNamespace(monotonic=lambda: 0.0),
        scratch=memoryview(bytearray(scratch)),
        max_request_bytes=1000,
        max_parked=10,
        parked=0,
        authenticates=False,
        received_bytes=0,
        sent_bytes=0,
        sendfile_bytes=0,
        service=SimpleNamespace(handle=handle),
        memory=RequestMemory(1 << 30, FakeClock()),
        backlog=SimpleNamespace(is_long=False, late_after=float("inf"), add=Connection.serve_held),
        pool=BufferPool(),
        forget=lambda _: None,
    )
    connection = Connection(processor, sock, "h", "id", "L")  # type: ignore[arg-type]
    connection.start()
    return connection


def test_the_start_of_a_frame_survives_a_turn_that_brings_nothing() -> None:
    data = framed(b"x" * 20) * 3
    sock = Pieces(data[:64])
    connection = connection_on(sock, echo)
    for _ in range(3):
        connection.reader.on_readable()
    sock.pieces = [data[64:]]
    connection.reader.on_readable()
    assert b"".join(sock.sent) == data


def test_a_frame_that_moves_to_its_own_buffer_gets_no_more_time() -> None:
    data = framed(b"x" * 60_000)
    sock = Pieces(data[:2000])
    connection = connection_on(sock, echo, 256 * 1024)
    connection.processor.max_request_bytes = 100_000
    connection.reader.on_readable()
    now = FRAME_SECONDS - 1
    connection.processor.clock.monotonic = lambda: now  # type: ignore[method-assign]
    sock.pieces = [data[2000:10_000]]
    connection.reader.on_readable()
    assert connection.reader.received > 0
    assert not connection.is_stalled(now)
    assert connection.is_stalled(now + 2)


@pytest.mark.parametrize("size", [10, 5000])
def test_a_frame_that_stalls_is_given_up_also_while_the_loop_is_late(size: int) -> None:
    """Waiting for a turn gives it no more time than the wait takes."""
    sock = Pieces(framed(b"x" * 60_000)[:size])
    connection = connection_on(sock, echo, 256 * 1024)
    processor: Any = connection.processor
    processor.max_request_bytes = 100_000
    connection.reader.on_readable()
    waiting: list[Connection] = []
    processor.backlog = SimpleNamespace(
        is_long=False, late_after=-1.0, admit=lambda *_: False, add=waiting.append
    )
    for now in range(0, 61, 10):
        processor.clock.monotonic = lambda now=now: float(now)
        sock.pieces = [b"y"]
        processor.backlog.late_after = -1.0
        connection.reader.on_readable()
        processor.backlog.late_after = float("inf")
        waiting.pop().serve_held()
        if connection.is_stalled(now):
            break
    assert now == 40


def test_what_was_credited_to_a_frame_does_not_shorten_the_time_of_the_next() -> None:
    data = framed(b"x" * 900_000)
    sock = Pieces(data[:2000])
    connection = connection_on(sock, echo, 1024 * 1024)
    connection.processor.max_request_bytes = 1_000_000
    connection.reader.on_readable()
    for start in range(2000, len(data), 16_000):
        assert not connection.is_stalled(1)
        sock.pieces = [data[at : at + 1000] for at in range(start, min(start + 16_000, len(data)), 1000)]
        while sock.pieces:
            connection.reader.on_readable()
    assert b"".join(sock.sent) == data
    sock.pieces = [framed(b"next")[:5]]
    connection.reader.on_readable()
    assert not connection.is_stalled(2)


class Receiver:
    """A connection that receives a large request."""

    def __init__(self, memory: RequestMemory) -> None:
        self.memory = memory
        self.received = 0
        self.is_held_up = False
        self.closed = False
        assert memory.reserve(self, 100, 100)

    def on_memory(self) -> None:
        raise AssertionError

    def close(self, reason: str | None) -> None:
        self.closed = True
        self.memory.release(self)


def test_requests_that_the_broker_does_not_read_are_not_too_slow() -> None:
    clock = FakeClock()
    memory = RequestMemory(300, clock)
    paused, resumed, stopped = Receiver(memory), Receiver(memory), Receiver(memory)
    paused.is_held_up = True
    assert not memory.reserve(Receiver.__new__(Receiver), 100, SMALL_FRAME + 1)
    # Not read for a part of the time.
    memory.excuse(resumed)
    clock.advance(SHORTAGE_SECONDS)
    assert (paused.closed, resumed.closed, stopped.closed) == (False, False, True)


class Trickle(Pieces):
    """A socket that takes a few bytes at a time."""

    blocked = False

    def sendmsg(self, buffers: list[bytes], ancillary: object, flags: int) -> int:
        self.blocked = not self.blocked
        if self.blocked:
            raise BlockingIOError
        taken = b"".join(buffers)[:999]
        self.sent.append(taken)
        return len(taken)


def test_small_slices_of_files_are_read_when_they_go_out(tmp_path: Path) -> None:
    data = bytes(range(256)) * 64
    (tmp_path / "f").write_bytes(data)
    file = Files().file(str(tmp_path / "f"))
    sizes = [0, 1, 100, COPIED_BYTES, 0, 1000, COPIED_BYTES - 1000, 5] * 5

    def handle(connection: Connection, frame: memoryview) -> Reply:
        return [part for size in sizes for part in (b"<", FileSlice(file, 0, size), b">")]

    sock = Trickle(framed(b"x"))
    connection = connection_on(sock, handle)
    connection.processor.loop.add_writer = connection.processor.loop.remove_writer = lambda *_: None  # type: ignore[method-assign]
    connection.reader.on_readable()
    while connection.busy:
        in_memory = sum(len(part) for part in connection.writer.out if isinstance(part, bytes | memoryview))
        assert connection.writer._owed - connection.writer.taken == in_memory
        assert in_memory <= COPIED_BYTES + 2 * len(sizes)
        connection.writer.on_writable()
    assert b"".join(sock.sent) == b"".join(b"<" + data[:size] + b">" for size in sizes)


class Full(Pieces):
    """A socket that takes nothing."""

    def send(self, data: bytes) -> int:
        raise BlockingIOError


def test_a_client_that_takes_its_responses_is_held_up_by_the_broker() -> None:
    first = PendingResponse()
    answers: list[Any] = [first, None]
    frame = framed(b"x" * 60_000)
    sock = Full(framed(b"a") + frame[:5000])
    connection = connection_on(sock, lambda *_: answers.pop(0), 256 * 1024)
    connection.processor.max_request_bytes = 100_000
    connection.processor.loop.add_writer = lambda *_: None  # type: ignore[method-assign]
    connection.reader.on_readable()
    assert connection.reader.received > 0
    assert not connection.reader.is_held_up
    first.complete([memoryview(b"response")])
    assert connection.busy
    assert connection.reader.is_held_up
    # It takes nothing for longer than that.
    connection.processor.clock.monotonic = lambda: SHORTAGE_SECONDS + 1  # type: ignore[method-assign]
    assert not connection.reader.is_held_up


class Broken(Pieces):
    """A socket that fails once it is read."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def recv_into(self, buffer: memoryview, size: int = 0) -> int:
        raise self.error


@pytest.mark.parametrize(
    ("error", "news"),
    [
        (ConnectionResetError(104, "Connection reset by peer"), []),
        (BrokenPipeError(32, "Broken pipe"), []),
        (TimeoutError(110, "Connection timed out"), ["the connection broke: Connection timed out"]),
    ],
)
def test_a_client_that_leaves_without_reading_its_answers_is_no_news(
    error: OSError, news: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(
        "ottla_broker.network.connection._closed_log.__class__.warning",
        lambda *_, **fields: reported.append(fields["reason"]),
    )
    connection = connection_on(Broken(error), echo)
    connection.reader.on_readable()
    assert connection.closed
    assert reported == news


async def test_a_flood_of_requests_leaves_others_their_turn() -> None:
    served: list[bytes] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        served.append(bytes(frame))
        return echo(connection, frame)

    async with serving(handle) as acceptor, client(acceptor) as flood, client(acceptor) as other:
        for one in (flood, other):
            one.send(b"hello")
            await one.receive()
        served.clear()
        # Both arrive before the broker's turn.
        flood.send(*[b"f"] * 5000)
        other.send(b"o")
        for _ in range(5000):
            await flood.receive()
        assert served.index(b"o") <= 2 * REQUESTS_PER_TURN
        assert len(served) == 5001


async def test_an_answer_does_not_serve_the_next_request_within_another() -> None:
    parked: list[PendingResponse] = []
    inside = False

    def handle(connection: Connection, frame: memoryview) -> Reply:
        nonlocal inside
        assert not inside, "served in the middle of another request"
        if frame == b"park":
            parked.append(PendingResponse())
            return parked[-1]
        if frame == b"release":
            inside = True
            for slot in parked:
                slot.complete([framed(b"released")])
            inside = False
        return echo(connection, frame)

    async with serving(handle, max_parked=1) as acceptor, client(acceptor) as a, client(acceptor) as b:
        a.send(b"park", b"next")
        while not parked:
            await asyncio.sleep(0.001)
        b.send(b"release")
        assert await b.receive() == b"release"
        assert [await a.receive() for _ in range(2)] == [b"released", b"next"]


async def test_answers_in_the_row_are_bounded_in_bytes() -> None:
    served = 0
    slot = PendingResponse()

    def handle(connection: Connection, frame: memoryview) -> Reply:
        nonlocal served
        served += 1
        return slot if frame == b"park" else [framed(b"a" * 100_000)]

    async with serving(handle, max_parked=1000) as acceptor, client(acceptor) as c:
        c.send(b"park", *[b"x"] * 200)
        await asyncio.sleep(0.1)
        assert served <= 3 + QUEUED_RESPONSE_BYTES // 100_000
        slot.complete([framed(b"first")])
        assert await c.receive() == b"first"
        for _ in range(200):
            assert len(await c.receive()) == 100_000
        assert served == 201


async def test_a_client_that_was_answered_late_is_not_idle_yet() -> None:
    slot = PendingResponse()
    async with (
        serving(lambda _c, f: slot if f == b"wait" else [framed(bytes(f))], max_idle_ms=1000) as acceptor,
        client(acceptor) as c,
    ):
        c.send(b"wait")
        await asyncio.sleep(1.2)
        slot.complete([framed(b"done")])
        assert await c.receive() == b"done"
        await asyncio.sleep(0.2)
        c.send(b"still here")
        assert await c.receive() == b"still here"


async def test_a_request_that_parks_on_a_closed_connection_is_abandoned() -> None:
    gone: list[bool] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        connection.close("an earlier answer could not be sent")
        return PendingResponse(lambda: gone.append(True))

    async with serving(handle) as acceptor, client(acceptor) as c:
        c.send(b"x")
        assert await c.closed()
        assert gone == [True]


async def test_what_an_abandoned_request_sets_off_may_answer_the_same_row() -> None:
    slots: list[PendingResponse] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        first = not slots
        slots.append(PendingResponse(lambda: slots[1].complete([b"late"]) if first else None))
        return slots[-1]

    async with serving(handle) as acceptor:
        async with client(acceptor) as c:
            c.send(b"1", b"2", b"3")
            while len(slots) < 3:
                await asyncio.sleep(0.001)
        while acceptor.processors[0].connections:
            await asyncio.sleep(0.001)


async def test_who_leaves_while_it_waits_for_memory_is_forgotten() -> None:
    size = 600_000
    async with serving(echo, memory=100_000) as acceptor, client(acceptor) as a:
        memory = acceptor.processors[0].memory
        a.writer.write(framed(b"z" * size)[:-1])
        while memory.used < size:
            await asyncio.sleep(0.001)
        async with client(acceptor) as b:
            b.send(b"q" * size)
            while not memory._waiting:
                await asyncio.sleep(0.001)
        acceptor.processors[1].close()
        assert not memory._waiting
        a.writer.write(b"z")
        assert await a.receive() == b"z" * size
        assert memory.used == 0


async def test_draining_answers_what_was_taken_and_takes_no_more() -> None:
    slots: list[PendingResponse] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        slots.append(PendingResponse())
        return slots[-1]

    async with serving(handle) as acceptor, client(acceptor) as c:
        c.send(b"1")
        while not slots:
            await asyncio.sleep(0.001)
        draining = asyncio.ensure_future(acceptor.drain(10))
        await asyncio.sleep(0.02)
        c.send(b"2")
        await asyncio.sleep(0.02)
        slots[0].complete([framed(b"answer")])
        assert await c.receive() == b"answer"
        await asyncio.wait_for(draining, 60)
        assert len(slots) == 1


async def test_a_connection_that_has_just_been_accepted_is_drained_as_well() -> None:
    """Also if the acceptor waits then, because connections come too fast."""
    slots: list[PendingResponse] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        slots.append(PendingResponse())
        return slots[-1]

    quotas = ConnectionQuotas(1000, 1000, {})
    clock = SystemClock(asyncio.get_running_loop())
    rates = quotas.rates = ConnectionRates(clock, 1000, Windows(11, 1000))
    rates.delay = lambda listener: 3600.0  # type: ignore[method-assign]
    async with serving(handle, quotas=quotas) as acceptor, client(acceptor) as c:
        c.send(b"1")
        async with asyncio.timeout(60):
            while not slots:
                await asyncio.sleep(0.001)
        acceptor.stop_accepting()
        draining = asyncio.ensure_future(acceptor.drain(10))
        await asyncio.sleep(0.02)
        slots[0].complete([framed(b"answer")])
        assert await c.receive() == b"answer"
        await asyncio.wait_for(draining, 60)


async def test_listeners_share_one_total() -> None:
    quotas = ConnectionQuotas(1, 1000, {})
    async with serving(echo, quotas=quotas) as one, serving(echo, quotas=quotas) as two:
        await asyncio.sleep(0.01)
        async with client(one) as a, client(two) as b:
            a.send(b"a")
            assert await a.receive() == b"a"
            b.send(b"b")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(b.reader.readexactly(1), 0.05)
            assert quotas.count == 1
            a.writer.close()
            assert await b.receive() == b"b"


async def test_an_ipv6_listener() -> None:
    try:
        probe = open_listener("::1", 0, 1)
    except OSError:
        pytest.skip("no IPv6 here")
    probe.close()
    async with serving(lambda c, _: [framed(c.client_host.encode())], host="::1") as acceptor:
        reader, writer = await asyncio.open_connection("::1", acceptor.port)
        c = Client(reader, writer)
        c.send(b"who am I")
        assert await c.receive() == b"::1"
        writer.close()
        await writer.wait_closed()


async def test_an_ipv4_client_of_an_ipv6_listener_is_known_by_its_ipv4_address() -> None:
    try:
        acceptor_of_all = serving(lambda c, _: [framed(c.client_host.encode())], host="::")
        async with acceptor_of_all as acceptor, client(acceptor) as c:
            c.send(b"who am I")
            assert await c.receive() == b"127.0.0.1"
    except ConnectionRefusedError:
        pytest.skip("IPv6 alone")


def test_localhost_is_its_ipv4_address(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with open_listener("localhost", 0, 5) as sock:
        assert sock.family == socket.AF_INET


async def test_an_acceptor_out_of_descriptors_says_so_once_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accept, reported, failures = socket.socket.accept, [], 3

    def accept_in_the_end(sock: socket.socket) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(24, "Too many open files")
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", accept_in_the_end)
    monkeypatch.setattr(
        "ottla_broker.network.acceptor._log.__class__.error", lambda *a, **k: reported.append(a[1])
    )
    async with serving(echo) as acceptor, client(acceptor) as c:
        c.send(b"in the end")
        assert await c.receive() == b"in the end"
    assert reported == ["cannot accept connections, trying on"]


async def test_a_stop_leaves_no_socket_of_a_flood_open() -> None:
    clients = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        for turns in range(6):
            async with serving(echo) as acceptor:
                await asyncio.sleep(0)  # until it waits
                clients += [socket.create_connection(("127.0.0.1", acceptor.port)) for _ in range(3)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                acceptor.stop_accepting()
        gc.collect()
    for each in clients:
        each.close()
    assert not warned


@pytest.mark.parametrize("is_long", [False, True])
def test_a_closed_connection_is_no_garbage(is_long: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        connection = connection_on(Pieces(framed(b"x")), echo)
        if is_long:
            connection.begin_long()
        connection.close(None)
        if is_long:
            connection.end_long()
        for late in (connection.on_response_ready, connection.stop_reading, connection.serve_held):
            late()
        connection.begin_long()
        connection.end_long()
        assert connection.has_left()
        assert not connection.busy
        before = id(connection)
        del connection, late
        assert before not in [id(each) for each in gc.get_objects() if isinstance(each, Connection)]
    finally:
        gc.enable()


def test_a_client_that_leaves_while_nothing_is_read_is_noticed() -> None:
    sock = Pieces(b"")
    connection = connection_on(sock, echo)
    assert not connection.has_left(), "while it is read, reading notices"
    connection.begin_long()
    assert connection.has_left()
    assert connection.closed


def test_requests_that_came_before_a_client_left_are_kept() -> None:
    sent = framed(b"x" * 20)
    sock = Pieces(sent[:3], b"")
    connection = connection_on(sock, echo)
    connection.begin_long()
    assert not connection.has_left()
    assert not connection.has_left(), "what it has sent may matter"
    sock.pieces.insert(0, sent[3:])
    connection.end_long()
    connection.reader.on_readable()
    assert sock.sent == [sent]
    connection.reader.on_readable()
    assert connection.closed


def test_reading_waits_for_all_that_began_long_work() -> None:
    sent = framed(b"x" * 20)
    sock = Pieces(sent)
    connection = connection_on(sock, echo)
    connection.begin_long()
    connection.begin_long()
    connection.end_long()
    assert connection.has_left() is False
    assert sock.sent == []
    connection.end_long()
    connection.serve_held()
    assert sock.sent == [sent]


def test_a_request_that_was_read_to_find_out_whether_its_client_has_left_is_served_in_its_turn() -> None:
    data = framed(b"request")
    sock = Pieces(data)
    connection = connection_on(sock, echo)
    waiting: list[Connection] = []
    backlog: Any = SimpleNamespace(is_long=False, late_after=-1.0, admit=lambda *_: False, add=waiting.append)
    connection.processor.backlog = backlog
    connection.reader.on_readable()
    assert not connection.has_left()
    backlog.late_after = float("inf")
    waiting.pop().serve_held()
    assert sock.sent == [data]


def test_a_client_that_is_still_there_has_not_left() -> None:
    connection = connection_on(Pieces(), echo)
    connection.begin_long()
    assert not connection.has_left()
    assert not connection.closed


def test_a_connection_that_is_reset_after_its_last_bytes_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop reports the bytes and the reset as one event, and nothing after it."""
    monkeypatch.setattr(processor_module, "LOOK_SECONDS", 0.02)
    closed = asyncio.Event()

    def handle(connection: Connection, frame: memoryview) -> Reply:
        connection.on_close[handle] = closed.set
        return None

    async def leave() -> None:
        async with serving(handle) as acceptor:
            with socket.create_connection(("127.0.0.1", acceptor.port)) as sock:
                while not any(p.connections for p in acceptor.processors):
                    await asyncio.sleep(0)
                sock.sendall(framed(b"request") + b"\0")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await asyncio.wait_for(closed.wait(), 10)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(leave())


def test_many_connections_are_looked_at_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that were reset, each is found, also if others close or come meanwhile."""
    monkeypatch.setattr(processor_module, "POLLED_CONNECTIONS", 3)
    clock = FakeClock()
    clock.time = 25.0
    later: list[Any] = []
    read: list[Quiet] = []
    asked: list[int] = []

    class Quiet:
        closed = False
        last_active = 10.0

        def __init__(self) -> None:
            self.ours, self.its = socket.socketpair()
            self.fd = self.ours.fileno()

        def is_quiet(self, _since: float) -> bool:
            asked.append(1)
            return True

        def read_anew(self) -> None:
            read.append(self)

        def is_stalled(self, _now: float) -> bool:
            return False

        is_late = is_stalled

    unused: Any = None
    loop: Any = SimpleNamespace(call_soon=lambda call, *args: later.append((call, args)))
    settings = SocketSettings(1000, -1, 10, -1, -1)
    processor = Processor(0, "L", loop, clock, unused, unused, unused, unused, settings)
    quiet = [Quiet() for _ in range(10)]
    connections: set[Any] = set(quiet)
    processor.connections = connections
    order: list[Any] = list(connections)
    gone = order[5]
    for each in quiet:
        each.its.close()
    turns = []
    processor._look(-1.0, 10.0)
    turns.append(len(asked))
    gone.closed = True
    gone.ours.close()
    connections.clear()
    while later:
        call, args = later.pop()
        call(*args)
        turns.append(len(asked))
    for each in quiet:
        each.ours.close()
    assert read == [each for each in order if each is not gone]
    assert turns == [3, 5, 8, 9]


def test_a_flood_of_stalled_connections_is_closed_in_several_turns() -> None:
    clock = FakeClock()
    later: list[Any] = []
    closed: list[int] = []

    class Stalled:
        closed = False
        last_active = 0.0

        def is_stalled(self, _now: float) -> bool:
            return True

        def close(self, _reason: str | None) -> None:
            self.closed = True
            closed.append(1)
            clock.time += SLICE_SECONDS / 5

    unused: Any = None
    loop: Any = SimpleNamespace(call_soon=lambda call, *args: later.append((call, args)))
    settings = SocketSettings(1000, -1, 10, -1, -1)
    processor = Processor(0, "L", loop, clock, unused, unused, unused, unused, settings)
    connections: set[Any] = {Stalled() for _ in range(20)}
    processor.connections = connections
    processor._look(-1.0, 10.0)
    turns = 1
    while later:
        call, args = later.pop()
        call(*args)
        turns += 1
    assert len(closed) == 20
    assert turns >= 3
