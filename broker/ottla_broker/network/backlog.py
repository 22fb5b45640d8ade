"""Requests that have been received and wait for another turn.

A connection whose client sends many requests ahead has some of them served at once, and the rest when it is its turn
again. Turns go round the clients, and then round each client's connections, so a client gets no larger share by opening
more of them. They take as much time as everything else has taken meanwhile: a client whose request has just arrived
waits for a turn or two, however many connections flood.

Connections whose bytes have arrived are served at once, until a turn of the event loop has taken some milliseconds.
From then on one connection of each client is; the others wait for their turn.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from ottla_broker.network.service import ANONYMOUS, Principal

if TYPE_CHECKING:
    import asyncio

    from ottla_broker.clock import Clock

TURN_SECONDS: Final = 0.001
"""After this time a connection's turn ends."""
MOST_SECONDS: Final = 0.01
"""The longest time for which connections get turns one after another."""
LATE_SECONDS: Final = 0.005
"""A turn of the event loop that has taken longer is late."""
MANY: Final = 32
"""Where more connections than this wait, one whose bytes arrive begins with one request and a portion of its bytes."""
PORTION_BYTES: Final = 16 * 1024


class Waiting(Protocol):
    """A connection with requests that have been received."""

    principal: Principal

    @property
    def client_host(self) -> str: ...
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
        # By what a client has proved to be, or its address.
        self._waiting: dict[Principal | str, deque[Waiting]] = {}
        self._count = 0
        self._scheduled = False
        # When the last turn ended.
        self._since = 0.0
        self.is_long = False
        self.late_after = 0.0
        # Clients of which a connection was served since this turn became late.
        self._served_late: set[Principal | str] = set()

    def add(self, connection: Waiting) -> None:
        """Have ``connection.serve_held()`` called once, in a later turn of the event loop; it isn't late then."""
        self._waiting.setdefault(_client_of(connection), deque()).append(connection)
        self._count += 1
        self.is_long = self._count > MANY
        if not self._scheduled:
            self._schedule(self._clock.monotonic())

    def admit(self, connection: Waiting, now: float) -> bool:
        """Whether to serve a connection whose bytes have arrived after ``late_after``; otherwise it calls :meth:`add`.

        Of each client, the first that asks in a late turn is admitted.
        """
        if not self._scheduled:
            # While turns are short none is scheduled, so ``late_after`` may be of an earlier one.
            self._schedule(now)
            return True
        client = _client_of(connection)
        if client in self._served_late:
            return False
        self._served_late.add(client)
        return True

    def _schedule(self, now: float) -> None:
        self._scheduled = True
        self._since = now
        self.late_after = now + LATE_SECONDS
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        monotonic = self._clock.monotonic
        now = monotonic()
        self.late_after = inf
        until = now + min(max(now - self._since, TURN_SECONDS), MOST_SECONDS)
        waiting = self._waiting
        # None gets a second turn now.
        for _ in range(self._count):
            client = next(iter(waiting))
            connections = waiting.pop(client)
            connection = connections.popleft()
            if connections:
                waiting[client] = connections
            self._count -= 1
            connection.serve_held()
            if (now := monotonic()) >= until:
                break
        self.is_long = self._count > MANY
        self._scheduled = False
        self.late_after = now + LATE_SECONDS
        if self._count or self._served_late:
            self._served_late.clear()
            self._schedule(now)


def _client_of(connection: Waiting) -> Principal | str:
    principal = connection.principal
    return connection.client_host if principal == ANONYMOUS else principal
