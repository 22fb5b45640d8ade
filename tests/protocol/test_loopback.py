"""Which addresses only this machine reaches."""

from __future__ import annotations

import pytest

from ottla_protocol.loopback import is_loopback


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.10", "::1", "::1%lo", "localhost", "LocalHost", "ip6-loopback"]
)
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "fe80::1%eth0", "localhost.example", "db1"]
)
def test_others(host: str) -> None:
    assert not is_loopback(host)
