"""Threads for work that would block the event loop: fsync, recovery, compaction, deletion of files."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

T = TypeVar("T")
_LOWEST: Final = 19


class Background:
    """A bounded pool of threads that returns results to the event loop as futures.

    Owned by the loop thread. A function that runs on the pool may touch only what its docstring says.
    """

    def __init__(self, threads: int, *, nice: int = 0) -> None:
        """``nice``: how much lower the threads' priority for the processors is than the process's (nice(2))."""
        self._pool = ThreadPoolExecutor(
            max_workers=threads,
            thread_name_prefix="ottla",
            initializer=partial(_lower_priority, nice) if nice else None,
        )

    def run(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run ``function(*args)`` on a thread. The future gets its result or exception."""
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def close(self) -> None:
        """Wait for running functions, and drop those that haven't begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _lower_priority(nice: int) -> None:
    """Give this thread alone a lower priority; only Linux has priorities of threads."""
    if sys.platform == "linux":
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(own + nice, _LOWEST))
