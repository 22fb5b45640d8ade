"""Fixtures of the tests of Producer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.client.base.conftest import client_tasks, sockets

from ottla_client.producer import Producer

# Quick back-offs: nothing else differs from the defaults.
QUICK: dict[str, Any] = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 50, "reconnect_backoff_ms": 5}

NewProducer = Callable[..., Producer]


@pytest.fixture
async def new_producer() -> AsyncIterator[NewProducer]:
    """Makes producers with quick back-offs. A test closes them; no task or socket may be left then."""
    before = 0
    made: list[Producer] = []

    def make(bootstrap: str, **options: Any) -> Producer:
        nonlocal before
        if not made:
            before = sockets()  # the test has its broker now, which it may have a socket to
        made.append(Producer(bootstrap, **{**QUICK, **options}))
        return made[-1]

    yield make
    for producer in made:
        await producer.close(0)
    assert not client_tasks()
    async with asyncio.timeout(60):
        while made and sockets() > before:  # a proxy's ends, in this process too, close a little later
            await asyncio.sleep(0.01)
