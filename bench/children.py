"""Processes that end with the program that has started them, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_SET_PARENT_DEATH_SIGNAL: Final = 1  # of prctl(2)


def ending_with_parent(sign: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """For ``preexec_fn`` of a Popen: the child gets this signal when its parent has ended, by SIGKILL too.

    The parent is the thread that makes the Popen. None where the system has no such thing: Linux alone does.
    """
    if sys.platform != "linux":
        return None
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_SET_PARENT_DEATH_SIGNAL, sign)
        if os.getppid() != parent:  # it has ended before it could be asked for
            os.kill(os.getpid(), sign)

    return ask
