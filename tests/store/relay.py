"""A relay between a store and ZooKeeper that loses traffic for a test."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Relay:
    """Forwards to a port of this machine, on the test's own loop.

    ``swallowing``: requests arrive, answers are lost. ``holding``: nothing gets through. ``refusing``: new connections
    are closed at once.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallowing = False
        self.holding = False
        self.refusing = False
        self.accepted = 0

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Break the open connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refusing:
            writer.transport.abort()
            return
        try:
            answers, server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, server}
        for task in (
            asyncio.ensure_future(self._pump(reader, server, answers=False)),
            asyncio.ensure_future(self._pump(answers, writer, answers=True)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                while self.holding:
                    await asyncio.sleep(0.01)
                if not (answers and self.swallowing):
                    writer.write(data)
        writer.transport.abort()
