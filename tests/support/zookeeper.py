"""A real ZooKeeper: its jars come with pyspark, and Java 17 or later runs it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support.ports import free_port

_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_LEAST_JAVA = 17


class ZooKeeperProcess:
    """A standalone server on a free port. Its data stays in the folder from one start to the next.

    ``settings`` go into its configuration: ``secureClientPort`` and what TLS needs, for one.
    """

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        tick_ms: int = 500,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.folder = folder
        self.port = port or free_port()
        # Sessions last from 2 to 20 ticks, whatever their clients ask for.
        self._tick_ms = tick_ms
        self._settings = "".join(f"{key}={value}\n" for key, value in (settings or {}).items())
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, timeout: float = 60.0) -> ZooKeeperProcess:
        """Start it and wait until it serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"dataDir={self.folder / 'data'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            f"tickTime={self._tick_ms}\nmaxSessionTimeout=60000\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            f"4lw.commands.whitelist=ruok,srvr,mntr\n{self._settings}"
        )
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    java(),
                    "-Xmx256m",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    "-cp",
                    _classpath(),
                    _MAIN,
                    config,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        deadline = time.monotonic() + timeout
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"ZooKeeper did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as sock:
                sock.settimeout(1)
                sock.sendall(b"srvr")
                return b"Mode:" in sock.recv(4096)
        except OSError:
            return False

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; what was acknowledged is on the disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None


def java() -> str:
    """Java's path; a test that needs it is skipped with one line where there is none."""
    found = shutil.which("java")
    if found is None:
        pytest.skip(f"needs Java {_LEAST_JAVA} or later on the PATH, for ZooKeeper")
    return found


def _classpath() -> str:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        pytest.skip("needs pyspark, which has ZooKeeper's jars: pip install 'ottla[spark]'")
    jars = Path(spec.origin).parent / "jars"
    # What ZooKeeper needs of Spark's hundreds of jars: a JVM that indexes all of them starts a second later.
    wanted = (
        "zookeeper",
        "netty",
        "slf4j",
        "log4j",
        "metrics-core",
        "snappy-java",
        "commons-io",
        "commons-cli",
        "audience",
    )
    return ":".join(str(jar) for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(wanted))
