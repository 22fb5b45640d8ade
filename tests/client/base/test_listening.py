"""The servers of these tests leave no socket behind, whenever they stop."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
from tests.client.base.conftest import sockets
from tests.support.listening import Listener


@pytest.mark.parametrize("tls", [False, True])
async def test_stopping_at_any_moment_of_a_connection(tls: bool) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)

    before = sockets()
    for turns in range(12):
        listener = Listener(echo, tls=context)
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            if not tls:  # its handshake doesn't end
                client.sendall(b"hello")
            for _ in range(turns):
                await asyncio.sleep(0)
            await listener.stop()
        assert sockets() == before
