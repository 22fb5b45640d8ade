"""Spark's Python workers, which run one task after the other in the same process.

Spark sends a task in two pieces, the work first. The second one waits for the acknowledgement of the first (Nagle's
algorithm), which the kernel of the receiver delays for 40 ms, unless it is asked not to.

Between two tasks a worker collects garbage, and the next one waits for it (pyspark.daemon). With numpy, pyarrow and
numba loaded that takes 70 ms of CPU, several times what a small task does, nearly all of it to look at modules.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark import TaskContext

_sockets: list[socket.socket] | None = None
"""Those of this process that were there when its first task came: Spark's."""
_modules = 0
"""How many there were when they were last put out of the collector's sight."""


class Carried:
    """An object that Spark carries to tasks as a part of their work, and what is done as soon as it is there."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _hasten()


@contextmanager
def in_worker() -> Iterator[None]:
    """Around what a task does; the process is left readier for the next one."""
    try:
        yield
    finally:
        _settle()


def _hasten() -> None:
    """Acknowledge what Spark has sent, now; and have what is sent to it not wait for acknowledgements either."""
    global _sockets
    if TaskContext.get() is None or not hasattr(socket, "TCP_QUICKACK"):
        return
    if _sockets is None:
        _sockets = list(_tcp_sockets())
    for each in _sockets:
        with suppress(OSError):  # the other side has gone: Spark will say so
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _tcp_sockets() -> Iterator[socket.socket]:
    """Spark hands its socket to nobody, so it is found among the files of the process."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own is closed by now, and other sockets have no such option
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found = socket.socket(fileno=os.dup(int(name)))
                try:
                    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                except OSError:
                    found.close()
                    raise
                yield found


def _settle() -> None:
    """At a task's end: what has been imported stays, so the collector needn't look at it any more.

    Does nothing outside of Spark's tasks, where it isn't ours to say what stays.
    """
    global _modules
    if TaskContext.get() is None or len(sys.modules) == _modules:
        return
    _modules = len(sys.modules)
    gc.freeze()
