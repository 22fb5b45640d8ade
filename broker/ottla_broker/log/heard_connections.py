"""Tells when a request was sent, as far as its connection shows it: one that was sent too early is late (decision 9).

TCP keeps the order of what a client sends by one connection, so a lower bound of the time when one request was sent
holds for all that follow it. At first that is the time when the connection was accepted. A request that is sent again
after it was refused raises the bound: its client has seen the answer.
"""

from __future__ import annotations

from collections.abc import Container, Hashable
from enum import Enum
from itertools import islice
from typing import Final

REACTION_SECONDS: Final = 0.05
"""A repetition that comes earlier doesn't react to the answer: both requests were held together. Clients wait longer,
or send the request once more."""

_MOST_REFUSED: Final = 64
"""How many refused requests of one connection are remembered. One that is sent again is enough."""


class Arrival(Enum):
    """When a request was sent, compared with what its producer has done since.

    TIMELY: after that. UNCERTAIN: perhaps before; a client that still uses the connection sends a refused request
    again. LATE: its client has gone on on a newer connection.
    """

    TIMELY = 0
    UNCERTAIN = 1
    LATE = 2


class ConnectionAge:
    """Since when a connection is known to be in use. Times are on the monotonic clock.

    Attributes:
        accepted_at: when it was accepted.
        sent_after: whatever comes from now on was sent later than this.
    """

    __slots__ = ("_refused", "accepted_at", "sent_after")

    def __init__(self, accepted_at: float) -> None:
        self.accepted_at = self.sent_after = accepted_at
        self._refused: dict[Hashable, float] = {}

    def is_sent_after(self, since: float, request: Hashable, now: float) -> bool:
        """Whether ``request``, which has come ``now``, was sent after ``since``. If not, it is to be refused.

        ``request`` identifies what a client would send again; it has no two such requests without an answer.
        """
        if self.sent_after >= since:
            return True
        refused_at = self._refused.get(request)
        if refused_at is None or refused_at < since:
            if len(self._refused) >= _MOST_REFUSED:
                self._refused.clear()
            self._refused[request] = now
            return False
        if now - refused_at < REACTION_SECONDS:
            return False
        self.sent_after = refused_at
        self._refused.clear()
        return True


class HeardConnections:
    """The connections of one sender: a producer, or the coordinator of its transactions. Only memory has this.

    Attributes:
        epoch: the newest one of the sender. What it has sent with an older one is refused for that.
        newest: when the newest connection was accepted on which it has spoken; it has given up older ones.
        since: it has started again at this time: what it has sent before isn't wanted any more.
    """

    __slots__ = ("epoch", "newest", "since")

    def __init__(self, since: float = 0.0, epoch: int = -1) -> None:
        self.epoch = epoch
        self.newest = 0.0
        self.since = since

    def begin(self, now: float) -> None:
        """The sender has started again, or may have spoken elsewhere until now."""
        self.since = now

    def raise_epoch(self, epoch: int) -> None:
        """The sender has a newer epoch: whatever has it was sent since it was given out."""
        if self.epoch >= 0:
            self.newest = self.since = 0.0
        self.epoch = epoch

    def hear(self, connection: ConnectionAge, request: Hashable, now: float) -> Arrival:
        """Tell whether a request with the sender's newest epoch is late; ``request``: see :class:`ConnectionAge`."""
        if connection.accepted_at < self.newest:
            return Arrival.LATE
        self.newest = connection.accepted_at
        return Arrival.TIMELY if connection.is_sent_after(self.since, request, now) else Arrival.UNCERTAIN


class HeardSenders:
    """A partition's senders of one kind, by producer id. Owned by the log's thread."""

    def __init__(self, name: str, kind: str) -> None:
        self._key = (name, kind)
        self._heard: dict[int, HeardConnections] = {}
        # What is sent by a sender that isn't known may be from before it was forgotten.
        self._forgotten_at = 0.0

    def hear(
        self,
        producer_id: int,
        epoch: int,
        connection: ConnectionAge,
        request: Hashable,
        now: float,
        most: int,
    ) -> Arrival:
        """Tell whether a request is late; ``most``: of how many senders connections are remembered."""
        heard = self._heard.get(producer_id)
        if heard is None:
            heard = self._add(producer_id, now, most)
        if epoch < heard.epoch:
            return Arrival.TIMELY  # It is refused for its epoch.
        if epoch > heard.epoch:
            heard.raise_epoch(epoch)
        return heard.hear(connection, (*self._key, producer_id, request), now)

    def begin(self, producer_id: int, epoch: int, now: float, most: int) -> None:
        """A sender has started again, or has spoken elsewhere."""
        heard = self._heard.get(producer_id)
        if heard is None:
            if now <= self._forgotten_at:
                return
            heard = self._add(producer_id, now, most)
        if epoch > heard.epoch:
            heard.raise_epoch(epoch)
        heard.begin(now)

    def __len__(self) -> int:
        return len(self._heard)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._heard

    def strangers(self, known: Container[int], most: int) -> list[int]:
        """Up to ``most`` senders that aren't among the ``known``, those that were first heard longest ago."""
        return list(islice((one for one in self._heard if one not in known), most))

    def begin_all(self, now: float) -> None:
        """Every sender may have spoken elsewhere until now."""
        for heard in self._heard.values():
            heard.begin(now)
        self._forgotten_at = now

    def forget(self, producer_id: int, now: float) -> None:
        if self._heard.pop(producer_id, None) is not None:
            self._forgotten_at = now

    def forget_all(self, now: float) -> None:
        self._heard.clear()
        self._forgotten_at = now

    def _add(self, producer_id: int, now: float, most: int) -> HeardConnections:
        heard = HeardConnections(self._forgotten_at)
        if len(self._heard) >= most:
            self.forget(next(iter(self._heard)), now)
        self._heard[producer_id] = heard
        return heard
