"""Limits how fast clients connect (KIP-612): in all, on a listener, and from one address."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.config.model import INT_MAX
from ottla_broker.metadata.client_quotas import Rate, Windows
from ottla_broker.store.keys import DEFAULT_ENTITY

_MOST_ADDRESSES: Final = 10_000


@dataclass(slots=True)
class _Address:
    """``refused_until_ms``: connections until then are only looked up, which costs little."""

    rate: Rate
    refused_until_ms: int = 0


class ConnectionRates:
    """Owned by the loop thread.

    Attributes:
        total: the most connections per second; ``INT_MAX`` for no limit.
        by_listener: the most on single listeners (``listener.name.<name>.max.connection.creation.rate``).
        protected: the listener of other brokers, for which the total doesn't hold; None if there is none.
    """

    def __init__(self, clock: Clock, total: int, windows: Windows) -> None:
        self.total = total
        self.by_listener: dict[str, int] = {}
        self.protected: str | None = None
        self._clock = clock
        self._windows = windows
        self._all = Rate(*windows)
        self._of_listener: dict[str, Rate] = {}
        self._default: float | None = None
        self._limits: dict[str, float] = {}
        self._by_ip: OrderedDict[str, _Address] = OrderedDict()

    def set_ip(self, ip: str, rate: float | None) -> None:
        """Limit an address, or (``<default>``) each that has no limit of its own; None: no limit."""
        if ip == DEFAULT_ENTITY:
            self._default = rate
        elif rate is None:
            self._limits.pop(ip, None)
        else:
            self._limits[ip] = rate
        for address in self._by_ip.values():
            address.refused_until_ms = 0

    def delay(self, listener: str) -> float:
        """Count a connection of a listener; returns how many seconds to wait before it accepts the next one."""
        now_ms = int(self._clock.monotonic() * 1000)
        waits_ms = 0
        if self.total < INT_MAX and listener != self.protected:
            self._all.record(1, now_ms)
            waits_ms = self._all.throttle_ms(self.total, now_ms)
        limit = self.by_listener.get(listener, INT_MAX)
        if limit < INT_MAX:
            rate = self._of_listener.get(listener)
            if rate is None:
                rate = self._of_listener[listener] = Rate(*self._windows)
            rate.record(1, now_ms)
            waits_ms = max(waits_ms, rate.throttle_ms(limit, now_ms))
        return waits_ms / 1000

    def refused_until(self, ip: str) -> int:
        """Count a connection from an address; returns until when (ms) it comes too early, 0 if it doesn't."""
        limit = self._limits.get(ip, self._default)
        if limit is None:
            return 0
        now_ms = int(self._clock.monotonic() * 1000)
        address = self._by_ip.get(ip)
        if address is None:
            if len(self._by_ip) >= _MOST_ADDRESSES:
                self._by_ip.popitem(last=False)
            address = self._by_ip[ip] = _Address(Rate(*self._windows))
        self._by_ip.move_to_end(ip)
        if now_ms < address.refused_until_ms:
            return address.refused_until_ms
        rate = address.rate
        rate.record(1, now_ms)
        wait_ms = rate.throttle_ms(limit, now_ms)
        if not wait_ms:
            return 0
        # A connection that is refused doesn't count.
        rate.record(-1, now_ms)
        address.refused_until_ms = now_ms + min(wait_ms, self._windows.window_ms)
        return address.refused_until_ms
