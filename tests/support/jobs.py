"""Runs a broker's background jobs in the test instead of on threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Jobs:
    """Stands in for ``Background``: runs one job at a time, when the test says so."""

    def __init__(self) -> None:
        self._queue: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []

    def run(self, function: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((future, lambda: function(*args)))
        return future

    def close(self) -> None:
        pass

    def step(self) -> bool:
        """Run the oldest job; False without any."""
        if not self._queue:
            return False
        future, function = self._queue.pop(0)
        try:
            result = function()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        return True

    async def until(self, task: asyncio.Future[Any]) -> Any:
        """Run jobs until the task is done."""
        while not task.done():
            self.step()
            await asyncio.sleep(0)
        return task.result()

    async def drain(self) -> None:
        """Run jobs until there are none, including jobs that they start."""
        while self._queue:
            self.step()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
