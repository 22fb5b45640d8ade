"""Knows a producer's current connections: a request that comes by another one is late (decision 9).

A client that has gone on has done so on a newer connection, or it has aborted its transaction. What comes by an older
connection then is refused with an error on which the client sends it again. If it does so on the same connection, it
has seen the answer, so it still uses the connection. A client that has given the connection up doesn't see the answer.
"""

from __future__ import annotations

from typing import Final

_MOST_REFUSED: Final = 64
"""How many different requests on one connection are remembered. Clients have fewer under way."""


class HeardConnections:
    """One producer's connections. Only memory knows them: when a broker starts, all connections are new.

    A connection is known by the time when it was accepted, on the monotonic clock.

    Attributes:
        since: what comes by connections that were accepted earlier is late.
    """

    __slots__ = ("_proven", "_refused", "_suspect", "since")

    def __init__(self, since: float = 0.0) -> None:
        self.begin(since)

    def begin(self, since: float) -> None:
        """Take all connections that were accepted before for old ones."""
        self.since = since
        self._proven: float | None = None
        self._suspect: float | None = None
        self._refused: set[int] = set()

    def trust(self, connected_at: float) -> None:
        """A request by this connection can't be late."""
        if connected_at > self.since:
            self.begin(connected_at)
        elif connected_at < self.since:
            self._proven = connected_at

    def is_late(self, connected_at: float, request: int) -> bool:
        """Whether a request that comes by a connection is late.

        ``request`` is what the client would repeat: no two requests that it sends without an answer have the same one.
        """
        if connected_at > self.since:
            self.begin(connected_at)
            return False
        if connected_at in (self.since, self._proven):
            return False
        if connected_at != self._suspect:
            self._suspect = connected_at
            self._refused.clear()
        if request in self._refused:
            self._proven = connected_at
            return False
        if len(self._refused) >= _MOST_REFUSED:
            self._refused.clear()
        self._refused.add(request)
        return True
