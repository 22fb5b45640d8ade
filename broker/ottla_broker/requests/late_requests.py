"""Answers to requests that may have been sent before their sender went on (decision 9)."""

from __future__ import annotations

from ottla_broker.log.heard_connections import Arrival
from ottla_broker.network.pending_response import CloseConnection


def is_uncertain(arrival: Arrival, who: str) -> bool:
    """Whether to refuse a request so that ``who`` sends it again. Raises CloseConnection for one that is late."""
    if arrival is Arrival.LATE:
        raise late(who)
    return arrival is Arrival.UNCERTAIN


def late(who: str) -> CloseConnection:
    """For a late request: its sender has left the connection, or comes by a new one if it hasn't."""
    return CloseConnection(f"a late request: {who} has gone on, on a newer connection or with another leader")
