"""An account of memory that connections hold, and which of them are closed when it runs short."""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

from ottla_broker.clock import Clock

SHORTAGE_SECONDS: Final = 1.0
SHORTAGE_BYTES: Final = 256 * 1024
"""While memory is short, a connection may be closed that moves fewer bytes than this in ``SHORTAGE_SECONDS``."""


class Closable(Protocol):
    """Who holds memory."""

    def close(self, reason: str | None) -> None:
        """Close the connection, which gives back what it holds."""
        ...


Owner = TypeVar("Owner", bound=Closable)


class Account(Generic[Owner]):
    """Counts bytes. While it is short, the slowest of its owners are closed. Owned by the loop thread.

    Attributes:
        limit: the bound, in bytes.
        used: the bytes counted.
        TOO_SLOW: why an owner is closed.
    """

    TOO_SLOW: str

    def __init__(self, limit: int, clock: Clock) -> None:
        self.limit = limit
        self.used = 0
        self._clock = clock
        self._sizes: dict[Owner, int] = {}
        # While memory is short: what each had moved at the last look.
        self._seen: dict[Owner, int] | None = None

    @property
    def is_short(self) -> bool:
        """Whether the bound is reached."""
        return self.used >= self.limit

    def _moved(self) -> dict[Owner, int]:
        """The bytes moved so far by each owner that could move more."""
        raise NotImplementedError

    def excuse(self, owner: Owner) -> None:
        """Don't count this look against ``owner``, which the broker doesn't serve for a while."""
        if self._seen is not None:
            self._seen.pop(owner, None)

    def _watch(self) -> None:
        """Look at the owners' progress until memory isn't short."""
        if self._seen is None:
            self._seen = self._moved()
            self._clock.call_later(SHORTAGE_SECONDS, self._close_slowest)

    def _close_slowest(self) -> None:
        seen, self._seen = self._seen or {}, None
        moved = self._moved()
        progress = {each: moved[each] - before for each, before in seen.items() if each in moved}
        for each in sorted(progress, key=progress.__getitem__):
            if not self.is_short or progress[each] >= SHORTAGE_BYTES:
                break
            # Closing one may have closed others.
            if each in self._sizes:
                each.close(self.TOO_SLOW)
        if self.is_short:
            self._watch()
