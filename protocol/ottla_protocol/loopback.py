"""Addresses that only this machine reaches."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

LOOPBACK_NAMES: Final = ("localhost", "ip6-localhost", "ip6-loopback")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``; of names, only those of loopback count."""
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() in LOOPBACK_NAMES
