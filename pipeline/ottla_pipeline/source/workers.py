"""Spark's Python workers, which run one task after the other in the same process.

Between two tasks a worker collects garbage, and the next one waits for it (pyspark.daemon). With numpy, pyarrow and
numba loaded that takes 70 ms of CPU, several times what a small task does, nearly all of it to look at modules.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

_modules = 0
"""How many there were when they were last put out of the collector's sight."""


@contextmanager
def in_worker() -> Iterator[None]:
    """Around what a task does; the process is left readier for the next one."""
    try:
        yield
    finally:
        _settle()


def _settle() -> None:
    """At a task's end: what has been imported stays, so the collector needn't look at it any more.

    Does nothing outside of Spark's tasks, where it isn't ours to say what stays.
    """
    global _modules
    if TaskContext.get() is None or len(sys.modules) == _modules:
        return
    _modules = len(sys.modules)
    gc.freeze()
