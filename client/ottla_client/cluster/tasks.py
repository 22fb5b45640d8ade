"""Tasks that several callers await, and that end with their owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla_client.deadline import Deadline
from ottla_client.errors import ClosedError

_log = logging.getLogger("ottla_client")

T = TypeVar("T")


def background(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Run ``work`` until its owner cancels it. An exception that ends it is a defect, which is logged at once."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_log_defect)
    return task


def _log_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s has broken", task.get_name(), exc_info=error)


class Tasks:
    """The tasks of one owner. The event loop doesn't report their unawaited failures; the owner handles them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def ended(self) -> None:
        """Wait until all tasks have ended."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))


async def joined(task: asyncio.Future[T], deadline: Deadline) -> T:
    """The result of a shared task, which continues when this caller is cancelled or out of time.

    Raises TimeoutError at the deadline, ClosedError if the task's owner has been closed.
    """
    left = deadline.left()
    await asyncio.wait((task,), timeout=left if left != float("inf") else None)
    if not task.done():
        raise TimeoutError
    if task.cancelled():
        raise ClosedError("closed while this call was running")
    return task.result()
