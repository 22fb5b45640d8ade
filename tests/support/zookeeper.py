"""A real ZooKeeper. Tests that need it are skipped where it can't run."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from harness import zookeeper
from harness.java import Unavailable, find_java
from harness.ports import free_port
from kazoo.client import KazooClient
from tests.support.class_archive import archive_options


class ZooKeeperProcess:
    """A standalone server on a free port, which keeps its data between starts.

    ``settings`` are added to its configuration, such as ``secureClientPort`` for TLS; ``jvm``: more options
    of Java's.
    """

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        tick_ms: int = 500,
        settings: Mapping[str, object] | None = None,
        jvm: Sequence[str] = (),
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
            jvm=[*class_archive(), *jvm],
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


def class_archive() -> list[str]:
    """Options of a JVM that runs ZooKeeper from pyspark's jars."""
    classpath = _classpath()

    def run(options: list[str]) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            server = zookeeper.ZooKeeper(
                *(folder / "zoo.cfg", folder / "data", folder / "log", free_port()),
                java=java(),
                classpath=classpath,
                jvm=options,
            )
            try:
                server.start()
                client = KazooClient(server.address)
                client.start(60)
                client.create("/first")
                client.stop()
                client.close()
                server.stop()
            finally:
                server.kill()

    return archive_options("zookeeper", java(), [Path(jar) for jar in classpath.split(":")], run)
