"""Ctrl-C at the start of ``ottla``: until a command is loaded, it ends it at once, without a traceback.

An import would break off with a KeyboardInterrupt, which a class that is being made turns into other errors.
"""

from __future__ import annotations

import os
import signal
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def loading() -> None:
    # One that ignores Ctrl-C, because it was started in the background, goes on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def loaded() -> None:
    """The command decides from now on: it may have something to tidy up."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
