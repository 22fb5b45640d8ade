"""A real ZooKeeper. Tests that need it are skipped where it can't run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from harness import zookeeper
from harness.java import Unavailable, find_java
from harness.ports import free_port


class ZooKeeperProcess:
    """A standalone server on a free port, which keeps its data between starts.

    ``settings`` are added to its configuration, such as ``secureClientPort`` for TLS.
    """

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        tick_ms: int = 500,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.folder = folder
        self._server = zookeeper.ZooKeeper(
            folder / "zoo.cfg",
            folder / "data",
            folder / "log",
            port or free_port(),
            tick_ms=tick_ms,
            settings={"maxSessionTimeout": 60000, **(settings or {})},
            java=java(),
            classpath=_classpath(),
        )

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def pid(self) -> int:
        assert self._server.process is not None
        return self._server.process.pid

    def start(self, timeout: float = 60.0) -> ZooKeeperProcess:
        """Start the server, and wait until it serves."""
        self._server.start(timeout)
        return self

    def signal(self, number: signal.Signals) -> None:
        assert self._server.process is not None
        self._server.process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL; acknowledged writes are on disk."""
        self._server.kill()


def java() -> str:
    """Return Java's path, or skip the test."""
    return _or_skip(find_java)


def _classpath() -> str:
    return _or_skip(zookeeper.pyspark_classpath)


def _or_skip(find: Callable[[], str]) -> str:
    try:
        return find()
    except Unavailable as lack:
        pytest.skip(str(lack))
