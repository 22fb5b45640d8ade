"""Threads for work that would block the event loop: fsync, recovery, compaction, deletion of files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Background:
    """A bounded pool of threads that returns results to the event loop as futures.

    Owned by the loop thread. A function that runs on the pool may touch only what its docstring says.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ottla")

    def run(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run ``function(*args)`` on a thread. The future gets its result or exception."""
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def close(self) -> None:
        """Wait for running functions, and drop those that haven't begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)
