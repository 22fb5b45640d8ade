"""Responses whose bytes come one piece after the other."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.network.serving import client, framed, serving
from tests.support.waiting import until

from ottla_broker.log.files import Files, FileSlice
from ottla_broker.network.connection import Connection
from ottla_broker.network.service import Reply
from ottla_broker.network.streamed_part import StreamedPart


class Pieces(StreamedPart):
    """Gives pieces out when a test has put them in."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.ready: list[bytes] = []
        self.taken = 0
        self.closed = False
        self.on_ready: Callable[[], None] | None = None

    def __len__(self) -> int:
        return self.left

    def take(self, on_ready: Callable[[], None]) -> bytes | None:
        if not self.ready:
            self.on_ready = on_ready
            return None
        piece = self.ready.pop(0)
        self.left -= len(piece)
        self.taken += 1
        return piece

    def put(self, piece: bytes) -> None:
        self.ready.append(piece)
        on_ready, self.on_ready = self.on_ready, None
        if on_ready is not None:
            on_ready()

    def close(self) -> None:
        self.closed = True
        self.on_ready = None


@pytest.mark.parametrize("ready", [0, 1, 2, 5])
async def test_pieces_that_come_late(ready: int) -> None:
    pieces = [b"a" * 1000, b"b", b"c" * 300_000, b"d" * 10, b"e" * 100]
    parts: list[Pieces] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        if frame != b"stream":
            return [framed(bytes(frame))]
        part = Pieces(sum(map(len, pieces)))
        part.ready += pieces[:ready]
        parts.append(part)
        return [struct.pack(">i", len(part) + 8), b"head", part, b"tail"]

    async with serving(handle) as acceptor, client(acceptor) as c:
        c.send(b"before", b"stream", b"after", b"stream")
        assert await c.receive() == b"before"
        for number in (1, 2):
            await until(lambda number=number: len(parts) >= number)  # type: ignore[misc]
            part = parts[number - 1]
            for piece in pieces[ready:]:
                await asyncio.sleep(0.002)
                part.put(piece)
            assert await c.receive() == b"head" + b"".join(pieces) + b"tail"
            if number == 1:
                assert await c.receive() == b"after"


async def test_nothing_is_read_or_answered_meanwhile() -> None:
    seen: list[bytes] = []
    part = Pieces(3)

    def handle(connection: Connection, frame: memoryview) -> Reply:
        seen.append(bytes(frame))
        return [struct.pack(">i", 3), part] if len(seen) == 1 else [framed(bytes(frame))]

    async with serving(handle) as acceptor, client(acceptor) as c, client(acceptor) as other:
        c.send(b"first")
        await until(lambda: part.on_ready is not None)
        c.send(b"second")
        other.send(b"other")
        assert await other.receive() == b"other"
        assert seen == [b"first", b"other"]
        part.put(b"abc")
        assert await c.receive() == b"abc"
        assert await c.receive() == b"second"


async def test_beside_slices_of_files_and_other_streams(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    file = Files().file(str(tmp_path / "f"))
    parts: list[Pieces] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        parts[:] = [Pieces(2), Pieces(0), Pieces(3)]
        return [struct.pack(">i", 16), FileSlice(file, 1, 4), parts[0], b"x" * 4, parts[1], parts[2], b"end"]

    async with serving(handle) as acceptor, client(acceptor) as c:
        c.send(b"x")
        await until(lambda: bool(parts) and parts[0].on_ready is not None)
        parts[2].put(b"56")
        parts[0].put(b"a")
        parts[0].put(b"b")
        await until(lambda: parts[2].on_ready is not None)
        parts[2].put(b"7")
        assert await c.receive() == b"1234abxxxx567end"


async def test_a_slow_reader_takes_one_piece_after_the_other() -> None:
    part = Pieces(64 * 1_000_000)
    part.ready += [bytes(1_000_000)] * 64

    def handle(connection: Connection, frame: memoryview) -> Reply:
        return [struct.pack(">i", len(part)), part]

    async with serving(handle) as acceptor, client(acceptor) as c:
        c.reader._limit = 1 << 16  # type: ignore[attr-defined]
        c.send(b"x")
        await until(lambda: part.taken > 1)
        await asyncio.sleep(0.05)
        # What sockets and the reader hold, and no more.
        assert part.taken < 32
        assert len(await c.receive()) == 64_000_000
        assert part.taken == 64


@pytest.mark.parametrize("ready", [0, 40])
async def test_a_client_that_leaves(ready: int) -> None:
    part = Pieces(50_000_000)
    part.ready += [bytes(1_000_000)] * ready

    def handle(connection: Connection, frame: memoryview) -> Reply:
        return [struct.pack(">i", len(part)), part]

    async with serving(handle) as acceptor:
        async with client(acceptor) as c:
            c.send(b"x")
            await until(lambda: part.on_ready is not None or part.taken > 0)
        if not ready:
            # Only a send notices.
            part.put(bytes(1_000_000))
            await asyncio.sleep(0.01)
            if not part.closed:
                part.put(bytes(1_000_000))
        await until(lambda: part.closed)
