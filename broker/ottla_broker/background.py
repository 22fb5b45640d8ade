"""Threads for the work that would stall the event loop: fsync, recovery, compaction, deletion of files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Background:
    """A bounded pool of threads; results come back to the event loop as futures.

    Owned by the loop thread: only it calls :meth:`run`. The functions that run on the pool may touch only what
    their own docstrings say is safe from another thread.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ottla")

    def run(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run ``function(*args)`` on a thread; its result or its exception arrives at the future."""
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def close(self) -> None:
        """Wait for what is running; what has not begun is dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
