"""Requests that have been received and wait for another turn.

A connection whose client sends many requests ahead has some of them served at once, and the rest when it is its turn
again. Turns go round the clients, and then round each client's connections, so a client gets no larger share by opening
more of them. They take as much time as everything else has taken meanwhile: a client whose request has just arrived
waits for a turn or two, however many connections flood.

Connections whose bytes have arrived are served at once, until a turn of the event loop has taken some milliseconds.
From then on one connection of each client is, for some milliseconds more; the others wait for their turn. So a turn of
the event loop has a bound however many clients there are.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final, Protocol

from ottla_broker.client_queue import ClientQueue
from ottla_broker.clock import Clock
from ottla_broker.network.service import Known, Principal, client_of

TURN_SECONDS: Final = 0.001
"""After this time a connection's turn ends."""
MOST_SECONDS: Final = 0.01
"""The longest time for which connections get turns one after another, and of a late turn."""
LATE_SECONDS: Final = 0.005
"""A turn of the event loop that has taken longer is late."""
MANY: Final = 32
"""Where more connections than this wait, one whose bytes arrive begins with one request and a portion of its bytes."""
PORTION_BYTES: Final = 16 * 1024


class Waiting(Known, Protocol):
    """A connection with requests that have been received."""

    def serve_held(self) -> None:
        """Serve some of them, and call :meth:`Backlog.add` again if there are more."""
        ...


class Backlog:
    """The connections of a listener that wait for another turn. Owned by the loop thread.

    Attributes:
        is_long: whether more than ``MANY`` wait.
        late_after: when this turn of the event loop begins to be late; infinite during the backlog's own turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._waiting: ClientQueue[Waiting] = ClientQueue()
        self._scheduled = False
        # When the last turn ended.
        self._since = 0.0
        self.is_long = False
        self.late_after = 0.0
        # Clients of which a connection was served since this turn became late.
        self._served_late: set[Principal | str] = set()

    def add(self, connection: Waiting) -> None:
        """Have ``connection.serve_held()`` called once, in a later turn of the event loop; it isn't late then."""
        self._waiting.append(client_of(connection), connection)
        self.is_long = len(self._waiting) > MANY
        if not self._scheduled:
            self._schedule(self._clock.monotonic())

    def admit(self, connection: Waiting, now: float) -> bool:
        """Whether to serve a connection whose bytes have arrived after ``late_after``; otherwise it calls :meth:`add`.

        Of each client, the first that asks in a late turn is admitted, until the turn is ``MOST_SECONDS`` late.
        """
        if not self._scheduled:
            # While turns are short none is scheduled, so ``late_after`` may be of an earlier one.
            self._schedule(now)
            return True
        client = client_of(connection)
        if client in self._served_late or now > self.late_after + MOST_SECONDS:
            return False
        self._served_late.add(client)
        return True

    def _schedule(self, now: float) -> None:
        self._scheduled = True
        self._since = now
        self.late_after = now + LATE_SECONDS
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        waiting = self._waiting
        if not waiting and not self._served_late:
            self._scheduled = False
            return
        monotonic = self._clock.monotonic
        now = monotonic()
        self.late_after = inf
        until = now + min(max(now - self._since, TURN_SECONDS), MOST_SECONDS)
        try:
            # Those that want another turn make this one no longer.
            for _ in range(len(waiting)):
                waiting.popleft().serve_held()
                if (now := monotonic()) >= until:
                    break
        finally:
            # Also after a defect: the other connections go on.
            self.is_long = len(waiting) > MANY
            self._scheduled = False
            self.late_after = now + LATE_SECONDS
            if waiting or self._served_late:
                self._served_late.clear()
                self._schedule(now)
