"""What every log of a broker shares: the disk, the time, chance, and who does slow work for them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from .files import Files

if TYPE_CHECKING:
    from .flush import Flusher

_DAY_MS = 24 * 60 * 60 * 1000


def _at_once(delay_ms: int, function: Callable[[], None]) -> None:
    """Where nobody does things later (tools, recovery threads), they are done now."""
    function()


class LogEnvironment:
    """Handed to each log by the log manager; a test builds its own.

    ``later(delay_ms, function)`` runs a function that touches only files on a thread, after a delay.
    """

    __slots__ = (
        "files",
        "flusher",
        "later",
        "now_ms",
        "on_failure",
        "producer_id_expiration_ms",
        "random",
    )

    def __init__(
        self,
        files: Files,
        now_ms: Callable[[], int],
        random: Random,
        *,
        producer_id_expiration_ms: int = _DAY_MS,
        flusher: Flusher | None = None,
        later: Callable[[int, Callable[[], None]], None] = _at_once,
    ) -> None:
        self.files = files
        self.now_ms = now_ms
        self.random = random
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.flusher = flusher
        self.later = later
        # Told of the data folder of a log whose disk refuses, on the thread that used it.
        self.on_failure: Callable[[str], None] | None = None
