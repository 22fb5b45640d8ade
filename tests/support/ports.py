"""Ports for servers that are started with a number, and started on it again."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST = 10_240
_FEWEST = 2_000

_chance = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """A TCP port that nobody listens on at this moment, and that this process got from here only once.

    Not one of those that the kernel gives to connections, where there are enough others: while a broker is down, its
    port would become some client's, or a client that goes on asking for it would end up connected to itself.
    """
    while True:
        port = _pick()
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
        _given.add(found)
        return found


def _pick() -> int:
    """A port to try; 0 is the kernel's choice."""
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 0
    return _chance.randrange(_LEAST, first) if first - _LEAST >= _FEWEST else 0
