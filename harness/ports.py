"""Ports for servers that restart on the same port."""

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
    """Return a TCP port that is free now; never the same one twice in this process.

    It lies outside the kernel's range for outgoing connections if that leaves enough ports. Otherwise a client could
    take a broker's port while the broker is down, or connect to itself by retrying.
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
    """Return a port to try; 0 lets the kernel choose."""
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 0
    return _chance.randrange(_LEAST, first) if first - _LEAST >= _FEWEST else 0
