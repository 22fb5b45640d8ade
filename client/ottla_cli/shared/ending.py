"""Ends a command after Ctrl-C or SIGTERM: it may tidy up, but not for long.

The first signal cancels the command, which commits, flushes or aborts what it has begun. Brokers that are gone or
frozen don't answer that, and a client would wait for them as long as its timeouts say. So a command that makes no
progress for ``PATIENCE`` seconds is ended, and a second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 1.6
"""Seconds without progress after a signal."""
TIDY_SECONDS: Final = 1.0
"""For commands: how long a last request may take, so that there is time to report its failure."""
_EXPLAINED_AFTER: Final = 0.6


class Ending:
    """How a command ends that a signal has cancelled. Owned by the main thread.

    Attributes:
        signal: the number of the first signal, None without one.
        last_words: what to say if the command is ended before it can say how it went.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.last_words = ""
        self._progress_at = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def went_on(self) -> None:
        """The command makes progress with its end, such as a record that was delivered: wait on."""
        self._progress_at = monotonic()

    async def watched(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a command, which signals cancel."""
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        if self.signal is not None:
            main.close()
            raise asyncio.CancelledError
        return await main

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Signals are the command's, also before its loop runs and after."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number, handler in before.items():
            # One that ignores Ctrl-C, because it was started in the background, goes on doing so.
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._signalled)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self._end_now()
        self.signal = number
        self.went_on()
        # A thread: the loop itself may be busy, or wait for something that can't be cancelled.
        threading.Thread(target=self._watch, name="ending", daemon=True).start()
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            # This also wakes the loop up.
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _watch(self) -> None:
        sleep(_EXPLAINED_AFTER)
        self._say("Ending; Ctrl-C again ends it at once." if self.signal == signal.SIGINT else "Ending.")
        while (left := self._progress_at + PATIENCE - monotonic()) > 0:
            sleep(left)
        self._say("Ended without waiting any longer for an answer.")
        self._end_now()

    def _end_now(self) -> None:
        if self.last_words:
            self._say(self.last_words)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError, RuntimeError):
                if stream.isatty():
                    stream.write("\x1b[?25h")  # a live view may have hidden the cursor
                stream.flush()
        # Not by an exception: threads and cancelled tasks may be waiting, too.
        os._exit(128 + (self.signal or signal.SIGTERM))

    def _say(self, text: str) -> None:
        # A RuntimeError says that the signal has interrupted a write.
        with suppress(OSError, ValueError, AttributeError, RuntimeError):
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def run_to_the_end(ending: Ending, main: Coroutine[Any, Any, T]) -> T:
    """Run a command. Exits with 128 and the signal's number after one."""
    try:
        with ending.hearing(), asyncio.Runner() as runner:
            return runner.run(ending.watched(main))
    except asyncio.CancelledError:
        if ending.signal is None:
            raise
        sys.exit(128 + ending.signal)
