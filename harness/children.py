"""Child processes that end when the program that started them ends, even by SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_SET_PARENT_DEATH_SIGNAL: Final = 1  # of prctl(2)


def ending_with_parent(sign: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """Return a ``preexec_fn`` for Popen that has the kernel send the child ``sign`` when its parent ends.

    The parent is the thread that calls Popen. Returns None except on Linux, the only system with this feature.
    """
    if sys.platform != "linux":
        return None
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def request_signal() -> None:
        prctl(_SET_PARENT_DEATH_SIGNAL, sign)
        if os.getppid() != parent:  # the parent ended before the call above
            os.kill(os.getpid(), sign)

    return request_signal
