"""Keeps a rebalance from revoking partitions while the application processes their records.

Only one task may poll at a time. Partitions are revoked only while the application is inside a poll, or has received no
records since its last one. So a rebalance waits for the next poll, as with Java's consumer, and the poll waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..deadline import Deadline
from ..errors import ClientError
from .buffer import Buffer


class PollGate:
    """Belongs to one consumer and to the event loop's thread."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._holders = 0
        self._change: asyncio.Future[None] | None = None
        self._asked: asyncio.Future[None] | None = None
        self.inside = False
        """Whether the application is inside a poll."""
        self.closing = False

    @property
    def open(self) -> bool:
        """Whether records may be handed out."""
        return self._holders == 0

    def enter(self) -> None:
        """A poll begins. Raises ClientError during another poll."""
        if self.inside:
            raise ClientError("another task is polling this consumer; use one consumer for each task")
        self.inside = True
        self._buffer.mark_processed()
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(None)

    def leave(self) -> None:
        self.inside = False

    def signal(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def changed(self, deadline: Deadline) -> None:
        """Wait for ``signal`` or the deadline."""
        loop = asyncio.get_running_loop()
        change = self._change = loop.create_future()
        left = deadline.left()
        timer = loop.call_later(left, self.signal) if left < float("inf") else None
        try:
            await change
        finally:
            self._change = None
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """The application closes the consumer, so it processes nothing."""
        self.closing = True
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(None)
        self.signal()

    def shut(self) -> None:
        """Hand out nothing from now on: what was handed out is being committed."""
        self._holders += 1
        self._buffer.halt()

    @asynccontextmanager
    async def held(self, limit: float) -> AsyncIterator[bool]:
        """Hand out nothing inside the block, which begins when the application processes no records.

        Gives False if it still may after ``limit`` seconds.
        """
        self._holders += 1
        try:
            self._buffer.halt()
            deadline = Deadline(limit)
            while not self.inside and not self.closing and self._buffer.unprocessed and not deadline.passed():
                self._asked = asyncio.get_running_loop().create_future()
                try:
                    async with deadline.timeout():
                        await self._asked
                except TimeoutError:
                    break
                finally:
                    self._asked = None
            yield self.inside or self.closing or not self._buffer.unprocessed
        finally:
            self._holders -= 1
            self.signal()
