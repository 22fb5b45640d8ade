"""How fast clients may connect: in all (``max.connection.creation.rate``), and from one address (KIP-612)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.config.model import INT_MAX
from ottla_broker.metadata.client_quotas import Rate, Windows
from ottla_broker.store.keys import DEFAULT_ENTITY

_MOST_ADDRESSES: Final = 10_000


class ConnectionRates:
    """Owned by the loop thread.

    Attributes:
        total: the most connections per second; ``INT_MAX`` for no limit.
    """

    def __init__(self, clock: Clock, total: int, windows: Windows) -> None:
        self.total = total
        self._clock = clock
        self._windows = windows
        self._all = Rate(*windows)
        self._default: float | None = None
        self._limits: dict[str, float] = {}
        self._by_ip: OrderedDict[str, Rate] = OrderedDict()

    def set_ip(self, ip: str, rate: float | None) -> None:
        """Limit an address, or (``<default>``) each that has no limit of its own; None: no limit."""
        if ip == DEFAULT_ENTITY:
            self._default = rate
        elif rate is None:
            self._limits.pop(ip, None)
        else:
            self._limits[ip] = rate

    def delay(self) -> float:
        """Count a connection; returns how many seconds to wait before the next one is accepted."""
        if self.total >= INT_MAX:
            return 0.0
        now_ms = int(self._clock.monotonic() * 1000)
        self._all.record(1, now_ms)
        return self._all.throttle_ms(self.total, now_ms) / 1000

    def refused_for(self, ip: str) -> float:
        """Count a connection from an address; returns for how many seconds it comes too early, 0 if it doesn't."""
        limit = self._limits.get(ip, self._default)
        if limit is None:
            return 0.0
        now_ms = int(self._clock.monotonic() * 1000)
        rate = self._by_ip.get(ip)
        if rate is None:
            if len(self._by_ip) >= _MOST_ADDRESSES:
                self._by_ip.popitem(last=False)
            rate = self._by_ip[ip] = Rate(*self._windows)
        else:
            self._by_ip.move_to_end(ip)
        rate.record(1, now_ms)
        wait_ms = rate.throttle_ms(limit, now_ms)
        if wait_ms:
            # A connection that is refused doesn't count.
            rate.record(-1, now_ms)
        return min(wait_ms, self._windows.window_ms) / 1000
