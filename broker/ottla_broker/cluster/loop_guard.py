"""Gives up what a broker leads when its event loop stands still.

The loop serves clients, but kazoo's thread keeps the session with ZooKeeper. Without a guard, a broker whose loop is
held (a defect, a disk that doesn't answer, a swapped page) would lead on and serve no one. Kafka has no such guard.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

STEP_SECONDS: Final = 0.5
"""The time between two questions to the loop."""


class LoopGuard:
    """A thread that asks the loop for a sign of life.

    It counts unanswered questions, not seconds: a process that was frozen as a whole gets time to answer, and
    ZooKeeper decides whether it was away for too long.
    """

    def __init__(
        self,
        call_soon_threadsafe: Callable[[Callable[[], None]], object],
        seconds: float,
        on_stall: Sequence[Callable[[], None]],
    ) -> None:
        """``on_stall``: called on the guard's thread each time the loop has stood still for ``seconds``."""
        self._call_soon = call_soon_threadsafe
        self._most = max(2, round(seconds / STEP_SECONDS))
        self._on_stall = on_stall
        self._answered = True
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="loop-guard", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        unanswered = 0
        while not self._ended.wait(STEP_SECONDS):
            if self._answered:
                self._answered = False
                unanswered = 0
                try:
                    self._call_soon(self._answer)
                except RuntimeError:
                    return  # the loop is closed
                continue
            unanswered += 1
            if unanswered == self._most:
                for act in self._on_stall:
                    act()

    def _answer(self) -> None:
        self._answered = True
