"""A browser as tests need it: pages as text, forms with what is hidden in them, events of a stream."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any, NamedTuple

from aiohttp import ClientResponse, ClientTimeout
from aiohttp.test_utils import TestClient, TestServer

from ottla_console.app import build
from ottla_console.settings import WebSettings

WAIT = ClientTimeout(total=60)


class Page(NamedTuple):
    status: int
    text: str
    headers: Any

    @property
    def hidden(self) -> dict[str, str]:
        """The hidden fields of the page's last form that has them."""
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.text)
        return {name: unescape(value) for name, value in found}


class Browser:
    def __init__(self, client: TestClient[Any, Any]) -> None:
        self._client = client

    async def get(self, path: str, **options: Any) -> Page:
        async with self._client.get(path, timeout=WAIT, **options) as answer:
            return await _page(answer)

    async def post(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> Page:
        async with self._client.post(path, data=fields, headers=headers, timeout=WAIT) as answer:
            return await _page(answer)

    @asynccontextmanager
    async def events(self, path: str) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        """The events of a stream, which is left at the end."""
        async with self._client.get(path, headers={"Accept": "text/event-stream"}, timeout=WAIT) as answer:
            assert answer.status == 200, await answer.text()
            yield _events(answer)

    def forget(self) -> None:
        """Without cookies."""
        self._client.session.cookie_jar.clear()


async def _page(answer: ClientResponse) -> Page:
    data = await answer.read()
    return Page(
        answer.status, data.decode("latin-1" if "octet" in answer.content_type else "utf-8"), answer.headers
    )


async def _events(answer: ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in answer.content:
        if line.startswith(b"event: "):
            name = line[7:].decode().strip()
        elif line.startswith(b"data: "):
            yield name, json.loads(line[6:])


@asynccontextmanager
async def browsing(
    bootstrap: str, client: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Browser]:
    """The console of a cluster, and a browser at it."""
    options = {"bootstrap_servers": bootstrap, **(client or {})}
    app = build(WebSettings(client=options, **settings))
    async with TestClient(TestServer(app)) as test:
        yield Browser(test)
