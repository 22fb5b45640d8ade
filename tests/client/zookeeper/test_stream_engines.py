"""A stop waits for all slow streams at once: the group waits for the slowest one, not for their sum."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest.mock import Mock

from ottla_client.zookeeper_consumer.stream_engines import StreamEngines

STREAMS = 4


async def test_slow_streams_are_waited_for_together() -> None:
    together = asyncio.Barrier(STREAMS)
    held = 0

    @asynccontextmanager
    async def hold(limit: float) -> AsyncIterator[bool]:
        nonlocal held
        assert limit == 2.0
        held += 1
        await together.wait()  # without end, if the streams waited one after the other
        try:
            yield False
        finally:
            held -= 1

    engines: list[Any] = [Mock() for _ in range(STREAMS)]
    for engine in engines:
        engine.gate.held = hold
    streams = StreamEngines(engines, lambda _, index: index, 2.0)
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        await streams._hold(stack, engines)
        assert held == STREAMS
    assert held == 0
