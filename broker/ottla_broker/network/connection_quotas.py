"""How many connections the broker takes, in all and from one address."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla_broker.network.connection_rates import ConnectionRates


class ConnectionQuotas:
    """Counts connections in total and by address (``max.connections``, ``max.connections.per.ip`` and its overrides).

    Owned by the loop thread. As in Kafka, a listener stops accepting when the total is reached, while a connection over
    its address's limit is closed at once.

    Attributes:
        rates: how fast clients may connect; None for any speed.
    """

    def __init__(self, total: int, per_ip: int, overrides: Mapping[str, int]) -> None:
        self.total = total
        self.per_ip = per_ip
        self.overrides = dict(overrides)
        self.rates: ConnectionRates | None = None
        self.count = 0
        self._by_ip: dict[str, int] = {}
        self._room = asyncio.Event()
        self._room.set()

    async def room(self) -> None:
        """Wait until one more connection fits; another listener may still take the place first."""
        while self.count >= self.total:
            await self._room.wait()

    def admit(self, ip: str) -> bool:
        """Count a connection in; ``False`` if its address has reached its limit."""
        held = self._by_ip.get(ip, 0)
        if held >= self.overrides.get(ip, self.per_ip):
            return False
        self._by_ip[ip] = held + 1
        self.count += 1
        if self.count >= self.total:
            self._room.clear()
        return True

    def update(self, total: int, per_ip: int, overrides: Mapping[str, int]) -> None:
        """Set other limits; open connections stay."""
        self.total = total
        self.per_ip = per_ip
        self.overrides = dict(overrides)
        if self.count < self.total:
            self._room.set()
        else:
            self._room.clear()

    def leave(self, ip: str) -> None:
        """Count a connection out."""
        held = self._by_ip[ip] - 1
        if held:
            self._by_ip[ip] = held
        else:
            del self._by_ip[ip]
        self.count -= 1
        if self.count < self.total:
            self._room.set()
