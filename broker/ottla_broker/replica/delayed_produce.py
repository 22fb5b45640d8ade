"""Requests that wait until offsets are reached: Kafka's DelayedProduce, and its DelayedDeleteRecords."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.replica.offset_waiters import OffsetWaiter, Reached
from ottla_protocol.errors import ErrorCode, KafkaError


class Awaited(NamedTuple):
    """An offset of a partition.

    Attributes:
        wait: a method such as :meth:`ottla_broker.replica.partition.Partition.when_committed`.
    """

    wait: Callable[[int, Reached], OffsetWaiter | None]
    offset: int


class Outcome(NamedTuple):
    """The end of the wait for one offset. ``offset`` is the one that was reached; -1 with an error."""

    error: ErrorCode
    offset: int = -1


class DelayedProduce:
    """Waits until all of its offsets are reached, or its time is up, and then runs once.

    Like :class:`.delayed_fetch.DelayedFetch` it runs in a later turn of the event loop than what completed it.
    Offsets that were not reached in time have REQUEST_TIMED_OUT as their outcome.

    Owned by the loop thread.
    """

    __slots__ = ("_awaited", "_clock", "_left", "_outcomes", "_run", "_timer", "_waiters")

    def __init__(
        self, awaited: Sequence[Awaited], clock: Clock, run: Callable[[Sequence[Outcome]], None]
    ) -> None:
        """``run`` is called with an outcome for each of the offsets, in their order."""
        self._awaited = awaited
        self._clock = clock
        self._run: Callable[[Sequence[Outcome]], None] | None = run
        self._outcomes = [Outcome(ErrorCode.REQUEST_TIMED_OUT)] * len(awaited)
        self._waiters: list[OffsetWaiter] = []
        self._left = len(awaited)
        self._timer: TimerHandle | None = None

    def start(self, timeout_ms: int) -> None:
        """Start waiting, for ``timeout_ms`` at most."""
        self._timer = self._clock.call_later(timeout_ms / 1000, self._complete)
        for index, (wait, offset) in enumerate(self._awaited):
            try:
                waiter = wait(offset, partial(self._on_outcome, index))
            except KafkaError as error:
                self._on_outcome(index, error.code, -1)
                continue
            if waiter is None:
                self._on_outcome(index, ErrorCode.NONE, offset)
            else:
                self._waiters.append(waiter)

    def abandon(self) -> None:
        """Don't run: the client has gone."""
        self._run = None
        self._leave()

    def _on_outcome(self, index: int, error: ErrorCode, offset: int) -> None:
        self._outcomes[index] = Outcome(error, offset)
        self._left -= 1
        if not self._left and self._timer is not None:
            self._timer.cancel()
            self._timer = self._clock.call_later(0, self._complete)

    def _complete(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._leave()
            run(self._outcomes)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._left:
            for waiter in self._waiters:
                waiter.cancel()
