"""Long requests take turns with everything else on the event loop, and with each other.

A request with very many elements is decoded, handled and answered by a coroutine that pauses, and says how much it has
done since the last pause. One turn of the loop does ``TURN`` of that, about five milliseconds, and then the sockets and
timers of all other clients come first. The next turn goes to a request of the next client, so clients get equal shares,
and a short request isn't held up by the long ones that came before it.

Requests that share turns are decoded at the same time, so their memory is limited: see ``AT_ONCE_MEMORY``.

Small requests never get here. A handler that may loop over many elements pauses (:func:`.inline.pause`): its first
``AT_ONCE`` elements are served at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Hashable
from enum import Enum
from typing import Final, NamedTuple

from ottla_broker.client_queue import Budget, ClientQueue

Job = Generator[int, None, None]
"""Yields how many elements' worth of work it has done: one takes some microseconds."""

TURN: Final = 1_000
"""The work of one turn, in elements."""
AT_ONCE: Final = 500
"""The work that a request may do before it has to take turns, in elements."""
OPENED: Final = 50
"""The work of opening a partition's log, which takes about half a millisecond, in elements of a handler."""
OPENED_AT_ONCE: Final = 10
"""A request that opens more logs takes turns."""
CODED: Final = 100
"""The work of one slice of a sliced reader, writer or search, in elements of a handler."""

AT_ONCE_MEMORY: Final = 64 * 1024 * 1024
"""Bytes that jobs under way may take, estimated, for each :class:`Purpose`: large requests, small ones, and answers.
Further requests wait until others are done, and clients take turns there too."""
SMALL_MEMORY: Final = 2 * 1024 * 1024
"""A request whose elements take at most this many bytes is small: it never waits for large ones."""


class Purpose(Enum):
    """What jobs take memory for: each purpose has ``AT_ONCE_MEMORY``, so that none waits for another."""

    SMALL_REQUESTS = "small requests"
    REQUESTS = "requests"
    ANSWERS = "answers"
    DESCRIPTIONS = "descriptions"


class Reservation(NamedTuple):
    """The memory that a job may take, in bytes, and what for."""

    purpose: Purpose
    memory: int


class _Running:
    """A job, and what is left of its share of a turn."""

    __slots__ = ("client", "job", "left", "memory", "purpose")

    def __init__(self, job: Job, client: Hashable, memory: int, purpose: Purpose) -> None:
        self.job = job
        self.client = client
        self.memory = memory
        self.purpose = purpose
        self.left = TURN


def _in_the_next_turn(call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(call)


class Turns:
    """Runs jobs, ``TURN`` of one job in a turn of the event loop. Owned by the loop thread.

    Attributes:
        longest: the most work that one turn has done; for tests.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object] = _in_the_next_turn) -> None:
        self._call_soon = call_soon
        self._jobs: ClientQueue[_Running] = ClientQueue()
        # The one whose turn isn't over.
        self._current: _Running | None = None
        self._budgets = {each: Budget(AT_ONCE_MEMORY, self._begin) for each in Purpose}
        self._scheduled = False
        self.longest = 0

    def start(self, job: Job, client: Hashable, memory: int = 0, purpose: Purpose = Purpose.REQUESTS) -> None:
        """Work off a client's ``job``, which raises nothing, in turns with the others.

        ``memory``: the bytes that it may take for a purpose; a request's that takes few is a small one.
        """
        if purpose is Purpose.REQUESTS and memory <= SMALL_MEMORY:
            purpose = Purpose.SMALL_REQUESTS
        running = _Running(job, client, memory, purpose)
        if memory:
            self._budgets[purpose].reserve(client, memory, running)
        else:
            self._begin(running)
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._turn)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return self._current is None and not self._jobs

    def close(self) -> None:
        current = [] if self._current is None else [self._current]
        waiting = [each for budget in self._budgets.values() for each in budget.clear()]
        for running in [*current, *self._jobs, *waiting]:
            running.job.close()
        self._jobs.clear()
        self._current = None

    def _begin(self, running: _Running) -> bool:
        self._jobs.append(running.client, running)
        return True

    def _turn(self) -> None:
        jobs = self._jobs
        done = 0
        try:
            while done < TURN and (self._current is not None or jobs):
                running = self._current = self._current or jobs.popleft()
                try:
                    work = next(running.job)
                except StopIteration:
                    self._current = None
                    if running.memory:
                        self._budgets[running.purpose].release(running.memory)
                    continue
                done += work
                running.left -= work
                if running.left <= 0:
                    running.left = TURN
                    self._current = None
                    jobs.append(running.client, running)
        finally:
            # Also after a defect: the other jobs go on, and this one has ended.
            self.longest = max(self.longest, done)
            self._scheduled = not self.is_idle
            if self._scheduled:
                self._call_soon(self._turn)
