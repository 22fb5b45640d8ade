"""A part of a response whose bytes come one piece after the other, while it is being sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class StreamedPart(ABC):
    """Bytes of an announced number, of which only a piece or two are in memory.

    Owned by the loop thread. A part that is never asked for a piece has begun nothing.
    """

    @abstractmethod
    def __len__(self) -> int:
        """The bytes that are still to come."""

    @abstractmethod
    def take(self, on_ready: Callable[[], None]) -> bytes | memoryview | None:
        """The next piece, which is not empty; None: it isn't there yet, and ``on_ready`` is called once it is."""

    @abstractmethod
    def close(self) -> None:
        """Give up: the client has gone. ``on_ready`` is not called any more."""
