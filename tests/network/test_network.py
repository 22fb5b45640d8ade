"""Acceptor, processors and connections over real sockets, with services that answer as each test needs."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import struct
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.network.serving import Client, client, echo, framed, serving
from tests.support.waiting import until

from ottla_broker import events
from ottla_broker.log.files import Files, FileSlice
from ottla_broker.network import account as account_module
from ottla_broker.network import answers as answers_module
from ottla_broker.network import processor as processor_module
from ottla_broker.network import reader as reader_module
from ottla_broker.network.acceptor import ListenError, open_listener
from ottla_broker.network.connection import Connection
from ottla_broker.network.pending_response import CloseConnection, PendingResponse
from ottla_broker.network.processor import SCRATCH_BYTES
from ottla_broker.network.request_memory import BufferPool
from ottla_broker.network.service import Reply


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 7, 1000])
async def test_frames_may_arrive_in_pieces_of_any_size(step: int) -> None:
    bodies = [b"", b"a", b"bc" * 50, b"d" * 300]
    data = b"".join(map(framed, bodies))
    async with serving(echo) as acceptor, client(acceptor) as c:
        for i in range(0, len(data), step):
            c.writer.write(data[i : i + step])
            await c.writer.drain()
            await asyncio.sleep(0)
        assert [await c.receive() for _ in bodies] == bodies


@pytest.mark.parametrize("size", [5000, SCRATCH_BYTES - 4, SCRATCH_BYTES, SCRATCH_BYTES + 1, 3_000_000])
async def test_large_frames_beside_small_ones(size: int) -> None:
    big = os.urandom(size)
    async with serving(echo, max_request=4_000_000) as acceptor, client(acceptor) as c:
        for _ in range(3):
            c.send(b"before", big, b"after", big, b"")
            assert [await c.receive() for _ in range(5)] == [b"before", big, b"after", big, b""]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_accepted_sockets_have_the_listeners_options_and_their_own_address(host: str) -> None:
    seen: list[Connection] = []

    def remember(connection: Connection, frame: memoryview) -> Reply:
        seen.append(connection)
        return echo(connection, frame)

    async with serving(remember, host=host) as acceptor, client(acceptor) as c:
        c.send(b"")
        await c.receive()
        (connection,) = seen
        sock = connection.sock
        assert isinstance(sock, socket.socket)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        near, far = sock.getsockname(), sock.getpeername()
        assert connection.id == f"{near[0]}:{near[1]}-{far[0]}:{far[1]}-0-1"


async def test_requests_pipelined_by_the_thousand_are_answered_in_order() -> None:
    bodies = [b"%d" % i * (i % 40) for i in range(5000)]
    async with serving(echo) as acceptor, client(acceptor) as c:
        c.send(*bodies)
        assert [await c.receive() for _ in bodies] == bodies


async def test_responses_that_come_together_do_not_make_a_turn_longer() -> None:
    """Each response that was ready while frames were held had another portion of them served in the next turn."""
    parked: list[tuple[PendingResponse, bytes]] = []
    in_turn, longest = 0, 0
    loop = asyncio.get_running_loop()

    def turn() -> None:
        nonlocal in_turn
        in_turn = 0
        ready, parked[:] = parked[:], []
        for slot, body in ready:
            slot.complete([framed(body)])

    def park(connection: Connection, frame: memoryview) -> Reply:
        nonlocal in_turn, longest
        if not parked:
            loop.call_soon(turn)
        in_turn += 1
        longest = max(longest, in_turn)
        parked.append((slot := PendingResponse(), bytes(frame)))
        return slot

    bodies = [b"%d" % number for number in range(2_000)]
    async with serving(park, processors=1, max_parked=5_000) as acceptor, client(acceptor) as c:
        c.send(*bodies)
        assert [await c.receive() for _ in bodies] == bodies
    # The backlog's turn may come before that which counts.
    assert longest <= 2 * reader_module.REQUESTS_PER_TURN


async def test_a_turn_of_slow_requests_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "TURN_SECONDS", 0.0)
    turns = 0
    loop = asyncio.get_running_loop()

    def turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    seen: list[int] = []

    def note(connection: Connection, frame: memoryview) -> Reply:
        seen.append(turns)
        return echo(connection, frame)

    async with serving(note, processors=1) as acceptor, client(acceptor) as c:
        loop.call_soon(turn)
        c.send(b"a", b"b", b"c")
        assert [await c.receive() for _ in range(3)] == [b"a", b"b", b"c"]
        assert len(set(seen)) == 3


async def test_parked_requests_keep_their_place_in_the_row() -> None:
    slots: list[tuple[PendingResponse, bytes]] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        if frame[:4] == b"park":
            slot = PendingResponse()
            slots.append((slot, bytes(frame)))
            return slot
        return echo(connection, frame)

    async with serving(handle) as acceptor, client(acceptor) as c:
        c.send(b"one", b"park1", b"two", b"park2", b"three")
        assert await c.receive() == b"one"
        while len(slots) < 2:
            await asyncio.sleep(0.001)
        slots[1][0].complete([framed(slots[1][1])])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(c.reader.readexactly(1), 0.05)
        slots[0][0].complete([framed(slots[0][1])])
        assert [await c.receive() for _ in range(4)] == [b"park1", b"two", b"park2", b"three"]


async def test_a_connection_with_many_parked_requests_is_not_read_from() -> None:
    slots: list[PendingResponse] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        slots.append(PendingResponse())
        return slots[-1]

    async with serving(handle, max_parked=3) as acceptor, client(acceptor) as c:
        c.send(*[b"x"] * 10)
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert len(slots) == 3
        for i in range(10):
            slots[i].complete([framed(b"%d" % i)])
            assert await c.receive() == b"%d" % i
        assert len(slots) == 10


async def test_where_very_many_requests_wait_each_connection_has_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers_module, "MOST_PARKED", 20)
    slots: list[PendingResponse] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        slots.append(PendingResponse())
        return slots[-1]

    async with AsyncExitStack() as stack:
        acceptor = await stack.enter_async_context(serving(handle, processors=1, max_parked=1_000))
        clients = [await stack.enter_async_context(client(acceptor)) for _ in range(4)]
        for c in clients:
            c.send(*[b"x"] * 15)
        few = answers_module.FEW_PARKED
        await until(lambda: len(slots) >= 20)
        for _ in range(20):
            await asyncio.sleep(0.002)
        # The first may have had more before there were very many.
        assert len(slots) <= 20 + 4 * few
        while len(slots) < 60 or not all(each.ready for each in slots):
            for slot in [each for each in slots if not each.ready]:
                slot.complete([framed(b"y")])
            await asyncio.sleep(0)
        for c in clients:
            assert [await c.receive() for _ in range(15)] == [b"y"] * 15
        assert acceptor.processors[0].parked == 0


async def test_a_request_without_answer_leaves_no_gap() -> None:
    def handle(connection: Connection, frame: memoryview) -> Reply:
        if frame == b"silent":
            return None
        if frame == b"later silent":
            slot = PendingResponse()
            asyncio.get_running_loop().call_later(0.01, slot.complete, None)
            return slot
        return echo(connection, frame)

    async with serving(handle) as acceptor, client(acceptor) as c:
        c.send(b"1", b"silent", b"2", b"later silent", b"3")
        assert [await c.receive() for _ in range(3)] == [b"1", b"2", b"3"]


async def test_a_slow_reader_is_not_read_from_and_loses_nothing() -> None:
    served = 0

    def handle(connection: Connection, frame: memoryview) -> Reply:
        nonlocal served
        served += 1
        return [framed(bytes(frame) * 100_000)]

    async with serving(handle) as acceptor, client(acceptor) as c:
        c.send(*[b"%02d" % i for i in range(80)])
        await asyncio.sleep(0.1)
        assert served < 80
        for i in range(80):
            assert await c.receive() == b"%02d" % i * 100_000
        assert served == 80


async def test_file_slices_are_sent_between_bytes(tmp_path: Path) -> None:
    data = os.urandom(6_000_000)
    (tmp_path / "f").write_bytes(data)
    file = Files().file(str(tmp_path / "f"))

    def handle(connection: Connection, frame: memoryview) -> Reply:
        start = int(bytes(frame))
        size = 8 + 5_000_000
        return [
            struct.pack(">i", size),
            b"head",
            FileSlice(file, start, 2_500_000),
            b"",
            memoryview(b"tail"),
            FileSlice(file, start + 2_500_000, 2_500_000),
        ]

    async with serving(handle) as acceptor, client(acceptor) as c:
        c.send(b"0", b"1000", b"999999")
        for start in (0, 1000, 999_999):
            got = await c.receive()
            middle, last = data[start : start + 2_500_000], data[start + 2_500_000 : start + 5_000_000]
            assert got == b"head" + middle + b"tail" + last


@pytest.mark.parametrize("announced", [100, 100_000])
async def test_a_file_that_ends_early_closes_the_connection(tmp_path: Path, announced: int) -> None:
    (tmp_path / "f").write_bytes(b"short")
    file = Files().file(str(tmp_path / "f"))

    def handle(connection: Connection, frame: memoryview) -> Reply:
        return [struct.pack(">i", announced), FileSlice(file, 0, announced), b"tail"]

    async with serving(handle) as acceptor, client(acceptor) as c:
        c.send(b"x")
        whole = struct.pack(">i", announced) + b"short"
        assert whole.startswith(await asyncio.wait_for(c.reader.read(), 60))


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
async def test_absurd_sizes_close_only_their_own_connection(size: int) -> None:
    async with serving(echo, max_request=1000) as acceptor, client(acceptor) as good, client(acceptor) as bad:
        bad.writer.write(struct.pack(">i", size) + b"xxxx")
        assert await bad.closed()
        good.send(b"y" * 1000)
        assert await good.receive() == b"y" * 1000


@pytest.mark.parametrize(
    ("first", "last_words"),
    [
        (bytes.fromhex("16030102000100"), "set the client's security.protocol to PLAINTEXT"),
        (b"GET / HTTP/1.1\r\n", "point the client elsewhere"),
        (b"\x7f\xff\xff\xff", "(socket.request.max.bytes)"),
    ],
    ids=["tls", "http", "neither"],
)
async def test_a_client_of_another_protocol_is_named(first: bytes, last_words: str) -> None:
    written = io.StringIO()
    events.configure(stream=written, json=True)
    try:
        async with serving(echo) as acceptor, client(acceptor) as c:
            c.writer.write(first)
            assert await c.closed()
        (reason,) = (json.loads(line)["reason"] for line in written.getvalue().splitlines())
    finally:
        events.configure()
    assert reason.endswith(last_words)


async def test_a_fault_closes_only_its_own_connection() -> None:
    def handle(connection: Connection, frame: memoryview) -> Reply:
        if frame == b"bad":
            raise CloseConnection("this can't be read")
        return echo(connection, frame)

    async with serving(handle) as acceptor, client(acceptor) as good, client(acceptor) as bad:
        bad.send(b"ok", b"bad", b"never")
        assert await bad.receive() == b"ok"
        assert await bad.closed()
        good.send(b"fine")
        assert await good.receive() == b"fine"


async def test_abandoned_requests_hear_of_it() -> None:
    there, gone = asyncio.Event(), asyncio.Event()

    def handle(connection: Connection, frame: memoryview) -> Reply:
        there.set()
        return PendingResponse(gone.set)

    async with serving(handle) as acceptor:
        async with client(acceptor) as c:
            c.send(b"x")
            await asyncio.wait_for(there.wait(), 60)
        await asyncio.wait_for(gone.wait(), 60)


async def test_idle_connections_are_closed_and_waiting_ones_are_not() -> None:
    def handle(connection: Connection, frame: memoryview) -> Reply:
        if frame == b"wait":
            slot = PendingResponse()
            asyncio.get_running_loop().call_later(0.5, slot.complete, [framed(b"done")])
            return slot
        return echo(connection, frame)

    async with (
        serving(handle, max_idle_ms=100) as acceptor,
        client(acceptor) as idle,
        client(acceptor) as waits,
    ):
        waits.send(b"wait")
        assert await idle.closed()
        assert await waits.receive() == b"done"


async def test_an_address_over_its_limit_is_cut_off_at_once() -> None:
    async with serving(echo, per_ip=50, overrides={"127.0.0.1": 2}) as acceptor:
        async with client(acceptor) as a, client(acceptor) as b, client(acceptor) as c:
            for one in (a, b):
                one.send(b"x")
                assert await one.receive() == b"x"
            assert await c.closed()
        await asyncio.sleep(0.05)
        async with client(acceptor) as d:
            d.send(b"again")
            assert await d.receive() == b"again"


async def test_over_the_total_a_connection_waits_its_turn() -> None:
    async with serving(echo, total=1) as acceptor:
        async with client(acceptor) as a:
            a.send(b"x")
            assert await a.receive() == b"x"
            reader, writer = await asyncio.open_connection("127.0.0.1", acceptor.port)
            second = Client(reader, writer)
            second.send(b"patience")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(second.reader.readexactly(1), 0.05)
        assert await second.receive() == b"patience"
        writer.close()


async def test_request_memory_is_bounded_and_handed_on() -> None:
    size = 600_000
    async with serving(echo, memory=100_000) as acceptor, client(acceptor) as a, client(acceptor) as b:
        body = b"z" * size
        a.writer.write(framed(body)[: size // 2])
        await a.writer.drain()
        memory = acceptor.processors[0].memory
        await until(lambda: memory.used > size // 2)
        used = memory.used
        b.send(b"q" * size)
        await until(lambda: bool(memory._waiting))
        assert memory.used == used
        a.writer.write(framed(body)[size // 2 :])
        assert await a.receive() == body
        assert await b.receive() == b"q" * size
        assert memory.used == 0


async def test_memory_of_a_connection_that_breaks_is_returned() -> None:
    async with serving(echo, memory=1) as acceptor:
        async with client(acceptor) as a:
            a.writer.write(framed(b"z" * 600_000)[:300_000])
            await a.writer.drain()
            await until(lambda: acceptor.processors[0].memory.used > 300_000)
        async with client(acceptor) as b:
            b.send(b"q" * 500_000)
            assert await b.receive() == b"q" * 500_000


async def test_requests_that_all_have_to_grow_grow_one_after_the_other() -> None:
    """More of them than there is memory for: the first goes on beyond the bound, so that all complete in the end."""
    size, count = 3_000_000, 5
    async with serving(echo, memory=1_000_000, max_request=size) as acceptor, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client(acceptor)) for _ in range(count)]
        memory = acceptor.processors[0].memory
        for each in clients:
            each.writer.write(framed(b"z" * size)[:20_000])
        await until(lambda: memory.used > count * 20_000)
        for each in clients:
            each.writer.write(framed(b"z" * size)[20_000:])
        answers = await asyncio.gather(*(each.receive() for each in clients))
        assert answers == [b"z" * size] * count
        assert memory.used == 0
        assert memory._exempt is None


async def test_a_size_that_is_announced_commits_no_memory() -> None:
    async with serving(echo, max_request=100 << 20) as acceptor, AsyncExitStack() as stack:
        memory = acceptor.processors[0].memory
        for _ in range(10):
            each = await stack.enter_async_context(client(acceptor))
            each.writer.write(struct.pack(">i", 100 << 20))
        await until(lambda: sum(len(p.connections) for p in acceptor.processors) == 10)
        await asyncio.sleep(0.05)
        assert memory.used == 0


async def test_small_requests_never_wait_for_memory() -> None:
    async with serving(echo, memory=1) as acceptor, client(acceptor) as stopped, client(acceptor) as small:
        memory = acceptor.processors[0].memory
        stopped.writer.write(framed(b"z" * 600_000)[:-1])
        await until(lambda: memory.used >= 600_000)
        body = b"q" * 10_000
        small.writer.write(framed(body)[:5000])
        await until(lambda: memory.used > 600_000)
        small.writer.write(framed(body)[5000:])
        assert await small.receive() == body


async def test_stopped_requests_make_way_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_module, "SHORTAGE_SECONDS", 0.2)
    size = 600_000
    async with serving(echo, memory=1_500_000) as acceptor, AsyncExitStack() as stack:
        memory = acceptor.processors[0].memory
        stopped = [await stack.enter_async_context(client(acceptor)) for _ in range(5)]
        for each in stopped:
            each.writer.write(framed(b"z" * size)[:-1])
        await until(lambda: memory.used >= memory.limit)
        honest = await stack.enter_async_context(client(acceptor))
        for _ in range(3):
            honest.send(b"q" * size)
            assert await honest.receive() == b"q" * size


async def test_a_fast_beginning_gives_a_request_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "FRAME_SECONDS", 0.3)
    monkeypatch.setattr(processor_module, "LOOK_SECONDS", 0.05)
    async with serving(echo) as acceptor, client(acceptor) as stopped:
        stopped.writer.write(framed(b"z" * 900_000)[:-1])
        assert await stopped.closed()


async def test_a_request_that_keeps_the_least_rate_is_received(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "FRAME_SECONDS", 0.3)
    monkeypatch.setattr(processor_module, "LOOK_SECONDS", 0.05)
    data = framed(b"z" * 100_000)
    async with serving(echo) as acceptor, client(acceptor) as slow:
        for start in range(0, len(data), 10_000):
            slow.writer.write(data[start : start + 10_000])
            await asyncio.sleep(0.1)
        assert await slow.receive() == data[4:]


@pytest.mark.parametrize("sent", [2, 1_000, 300_000])
async def test_a_request_that_does_not_go_on_is_given_up(sent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "FRAME_SECONDS", 0.2)
    monkeypatch.setattr(reader_module, "LEAST_BYTES_PER_SECOND", 1 << 30)
    monkeypatch.setattr(processor_module, "LOOK_SECONDS", 0.05)
    async with serving(echo) as acceptor, client(acceptor) as stalled, client(acceptor) as silent:
        silent.send(b"x")
        await silent.receive()
        stalled.writer.write(framed(b"z" * 600_000)[:sent])
        assert await stalled.closed()
        assert acceptor.processors[0].memory.used == 0
        silent.send(b"y")
        assert await silent.receive() == b"y"


async def test_connections_are_shared_out_among_the_processors() -> None:
    async with (
        serving(echo, processors=3) as acceptor,
        client(acceptor) as a,
        client(acceptor) as b,
        client(acceptor) as c,
    ):
        for one in (a, b, c):
            one.send(b"x")
            await one.receive()
        assert [len(p.connections) for p in acceptor.processors] == [1, 1, 1]


async def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(ListenError, match=f"listeners: 127.0.0.1:{port}: cannot listen there"):
            open_listener("127.0.0.1", port, 50)


def test_the_pool_reuses_and_bounds_its_buffers() -> None:
    pool = BufferPool()
    first = pool.acquire(100_000)
    pool.release(first)
    assert pool.acquire(90_000) is first
    for _ in range(20):
        pool.release(bytearray(100_000))
    assert len(pool._free) == BufferPool.KEEP
    pool.release(bytearray(BufferPool.LARGEST + 1))
    assert len(pool._free) == BufferPool.KEEP
