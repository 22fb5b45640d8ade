"""Keeps garbage collection short in Spark's Python workers, which run one task after the other in a process.

A worker collects garbage after each task, and the next task waits for that (pyspark.daemon). With numpy, pyarrow and
numba loaded it takes 70 ms of CPU, several times the work of a small task, nearly all of it for modules.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

_modules = 0
"""How many modules were loaded at the last ``gc.freeze``."""


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
