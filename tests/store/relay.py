"""A relay between a store and ZooKeeper that loses traffic for a test."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.support.listening import Listener


class Relay:
    """Forwards to a port of this machine, on the test's own loop.

    ``swallowing``: requests arrive, answers are lost. ``holding``: nothing gets through. ``refusing``: new connections
    are closed at once.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener: Listener | None = None
        self._servers: set[asyncio.StreamWriter] = set()
        self.swallowing = False
        self.holding = False
        self.refusing = False
        self.accepted = 0

    async def start(self) -> str:
        self._listener = Listener(self._relay)
        return self._listener.address

    def cut(self) -> None:
        """Break the open connections."""
        if self._listener is not None:
            self._listener.cut()
        for server in self._servers:
            server.transport.abort()

    async def close(self) -> None:
        assert self._listener is not None
        await self._listener.stop()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refusing:
            writer.transport.abort()
            return
        try:
            answers, server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._servers.add(server)
        pumps = [
            asyncio.ensure_future(self._pump(reader, server, answers=False)),
            asyncio.ensure_future(self._pump(answers, writer, answers=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (writer, server):
                end.transport.abort()
            self._servers.discard(server)
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                while self.holding:
                    await asyncio.sleep(0.01)
                if not (answers and self.swallowing):
                    writer.write(data)
