"""Spark's Python workers, which run one task after the other in the same process.

What a worker sends to Spark in several small pieces waits for acknowledgements, which the kernel delays for 40 ms:
Spark leaves TCP to put small pieces together.

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

from pyspark import TaskContext

_hastened = False
_modules = 0
"""How many there were when they were last put out of the collector's sight."""


@contextmanager
def in_worker() -> Iterator[None]:
    """Around what a task does; the process is left readier for the next one."""
    _hasten()
    try:
        yield
    finally:
        _settle()


def _hasten() -> None:
    """At a task's beginning: what is sent to Spark doesn't wait for what was sent before.

    Spark hands its socket to nobody, so it is found among the files of the process, once, before others are opened.
    """
    global _hastened
    if _hastened or TaskContext.get() is None or not os.path.isdir("/proc/self/fd"):
        return
    _hastened = True
    for name in os.listdir("/proc/self/fd"):
        with suppress(
            OSError
        ):  # the listing's own is closed by now, and sockets of other kinds have no such option
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as found:
                    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _settle() -> None:
    """At a task's end: what has been imported stays, so the collector needn't look at it any more.

    Does nothing outside of Spark's tasks, where it isn't ours to say what stays.
    """
    global _modules
    if TaskContext.get() is None or len(sys.modules) == _modules:
        return
    _modules = len(sys.modules)
    gc.freeze()
