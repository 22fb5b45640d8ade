"""Spares small tasks two waits in Spark's Python workers, which run one task after the other in a process.

A worker collects garbage after each task, and the next task waits for that (pyspark.daemon). With numpy, pyarrow and
numba loaded it takes 70 ms of CPU, several times the work of a small task, nearly all of it for modules.

Spark sends a task in two pieces: the pickled reader, then the partition. By Nagle's algorithm the second piece waits
until the first is acknowledged, and the worker's kernel delays that for 40 ms by default.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark import TaskContext

_modules = 0
"""The number of modules that were loaded at the last ``gc.freeze``."""
_sockets: list[socket.socket] | None = None
"""The TCP sockets that the process had at its first task: those to Spark."""


@contextmanager
def in_worker() -> Iterator[None]:
    """Around a task's work: prepares the process for the next task."""
    try:
        yield
    finally:
        _freeze_modules()


def _freeze_modules() -> None:
    """Hide imported modules from the garbage collector, as they stay. Only in Spark's tasks."""
    global _modules
    if TaskContext.get() is None or len(sys.modules) == _modules:
        return
    _modules = len(sys.modules)
    gc.freeze()


def acknowledge_now() -> None:
    """Have the kernel acknowledge at once what Spark has sent. It forgets this soon, so each task needs it."""
    global _sockets
    if TaskContext.get() is None or not hasattr(socket, "TCP_QUICKACK"):
        return
    if _sockets is None:
        _sockets = list(_tcp_sockets())
    for each in _sockets:
        with suppress(OSError):  # Spark has closed it, and ends the worker for that
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _tcp_sockets() -> Iterator[socket.socket]:
    """Copies of the process's TCP sockets. pyspark has no public way to the one that it uses."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own descriptor is closed by now
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                copy = socket.socket(fileno=os.dup(int(name)))
                if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
                    yield copy
                else:
                    copy.close()
