"""Fetches that wait for data: Kafka's DelayedFetch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla_broker.clock import Clock, TimerHandle


class DelayedFetch:
    """Waits until its partitions have enough new bytes, or its time is up, and then runs once.

    It runs in a later turn of the event loop than the append that completed it, so that one produce request to several
    partitions causes one response, and the producer gets its own first.

    Owned by the loop thread.
    """

    __slots__ = ("_clock", "_missing", "_places", "_run", "_timer")

    def __init__(
        self,
        places: Iterable[set[DelayedFetch]],
        missing_bytes: int,
        clock: Clock,
        run: Callable[[], None],
    ) -> None:
        """``places``: the partitions' ``fetches`` for consumers, their ``follower_fetches`` for followers."""
        self._places = list(places)
        self._missing = missing_bytes
        self._clock = clock
        self._run: Callable[[], None] | None = run
        self._timer: TimerHandle | None = None

    def start(self, max_wait_ms: int) -> None:
        """Start waiting, for ``max_wait_ms`` at most."""
        for place in self._places:
            place.add(self)
        self._timer = self._clock.call_later(max_wait_ms / 1000, self._end)

    def grow(self, size: int) -> None:
        """Called by a partition that has ``size`` more bytes to read."""
        if self._missing <= 0:
            return
        self._missing -= size
        if self._missing <= 0:
            self._leave()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._clock.call_later(0, self._complete)

    def finish(self) -> None:
        """Stop waiting, and answer with the available data."""
        self.grow(self._missing)

    def abandon(self) -> None:
        """Don't run: the client has gone."""
        self._run = None
        self._leave()
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        self._missing = 0
        self._leave()
        self._complete()

    def _complete(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run()

    def _leave(self) -> None:
        for place in self._places:
            place.discard(self)
