"""Limits the broker's connections: in all, on a listener, and from one address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ottla_broker.config.model import INT_MAX
from ottla_broker.network.connection_rates import ConnectionRates


class ConnectionQuotas:
    """Counts connections in total, by listener and by address.

    The limits are ``max.connections``, the same of a listener, and ``max.connections.per.ip`` with its overrides. As
    in Kafka, a listener stops accepting when its limit or the total is reached, while a connection over its address's
    limit is closed at once. The protected listener, that of other brokers, accepts beyond the total; then the
    connection of another listener that was idle for the longest time is closed (KIP-402).

    Owned by the loop thread.

    Attributes:
        rates: how fast clients may connect; None for any speed.
        by_listener: the limits of single listeners.
        protected: the listener that may exceed the total; None if there is none.
        close_idlest: closes the connection that was idle for the longest time, of the listeners that aren't protected.
            Returns False if there is none.
    """

    def __init__(self, total: int, per_ip: int, overrides: Mapping[str, int]) -> None:
        self.total = total
        self.per_ip = per_ip
        self.overrides = dict(overrides)
        self.by_listener: dict[str, int] = {}
        self.protected: str | None = None
        self.close_idlest: Callable[[], bool] = lambda: False
        self.rates: ConnectionRates | None = None
        self.count = 0
        self._by_ip: dict[str, int] = {}
        self._on_listener: dict[str, int] = {}
        self._changed = asyncio.Event()

    def has_room(self, listener: str) -> bool:
        """Whether one more connection of a listener fits."""
        if self._on_listener.get(listener, 0) >= self.by_listener.get(listener, INT_MAX):
            return False
        return self.count < self.total or listener == self.protected

    async def room(self, listener: str) -> None:
        """Wait until one more connection fits; another listener may still take the place first."""
        while not self.has_room(listener):
            self._changed.clear()
            await self._changed.wait()

    def admit(self, listener: str, ip: str) -> bool:
        """Count a connection in; ``False`` if its address has reached its limit."""
        if not self.admit_aside(ip):
            return False
        self._on_listener[listener] = self._on_listener.get(listener, 0) + 1
        self.count += 1
        self._close_excess()
        return True

    def admit_aside(self, ip: str) -> bool:
        """Count in a connection of a listener with a limit of its own, which has no part in the total.

        ``False`` if its address has reached its limit. :meth:`leave_aside` undoes it.
        """
        held = self._by_ip.get(ip, 0)
        if held >= self.limit_of(ip):
            return False
        self._by_ip[ip] = held + 1
        return True

    def leave_aside(self, ip: str) -> None:
        """Count such a connection out."""
        _less(self._by_ip, ip)

    def limit_of(self, ip: str) -> int:
        """The most connections of an address."""
        return self.overrides.get(ip, self.per_ip)

    def is_too_early(self, ip: str) -> bool:
        """Count a connection of an address, and say whether it exceeds the address's rate."""
        return self.rates is not None and self.rates.refused_until(ip) > 0

    def update(self, total: int, per_ip: int, overrides: Mapping[str, int]) -> None:
        """Set other limits. Connections beyond a lower total are closed, the idlest first, as in Kafka."""
        self.total = total
        self.per_ip = per_ip
        self.overrides = dict(overrides)
        self._close_excess()
        self._changed.set()

    def limit_listener(self, listener: str, limit: int) -> None:
        """Limit a listener; its open connections stay."""
        self.by_listener[listener] = limit
        self._changed.set()

    def _close_excess(self) -> None:
        while self.count > self.total and self.close_idlest():
            pass

    def leave(self, listener: str, ip: str) -> None:
        """Count a connection out."""
        _less(self._by_ip, ip)
        _less(self._on_listener, listener)
        self.count -= 1
        self._changed.set()


def _less(counts: dict[str, int], name: str) -> None:
    held = counts[name] - 1
    if held:
        counts[name] = held
    else:
        del counts[name]
