"""Producer ids for the transaction coordinator, which is called back instead of waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from ottla_broker.coordinator import codes
from ottla_broker.events import get_logger
from ottla_broker.tasks import Tasks, YieldEvery
from ottla_protocol.errors import KafkaError

_log = get_logger()

_PORTION: Final = 32
"""How many get their ids in one turn of the event loop: each then appends a record and answers."""


class ProducerIdSource:
    """Owned by the loop thread. ``next_id`` returns an id, or raises KafkaError."""

    def __init__(self, next_id: Callable[[], Awaitable[int]]) -> None:
        self._next_id = next_id
        self._tasks = Tasks()
        self._waiting: deque[Callable[[int, int], None]] = deque()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, drawn: Callable[[int, int], None]) -> None:
        """Call ``drawn`` once with an error code and the id, in a later turn of the event loop."""
        self._waiting.append(drawn)
        if self._task is None or self._task.done():
            self._task = self._tasks.start(self._draw())

    async def _draw(self) -> None:
        yields = YieldEvery(_PORTION)
        while self._waiting:
            code, producer_id = int(codes.NONE), -1
            try:
                producer_id = await self._next_id()
            except KafkaError as error:
                code = int(error.code)
            drawn = self._waiting.popleft()
            try:
                drawn(code, producer_id)
            except Exception as error:
                # The others get their ids all the same.
                _log.error("a request for a producer id failed", exc_info=error)
            await yields.worked()

    async def close(self) -> None:
        """Draw no further ids. Those who wait get no answer: their requests have been answered otherwise."""
        await self._tasks.close()
