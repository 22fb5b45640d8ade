"""Runs one real ZooKeeper server for tests, benchmarks and ``make cluster``.

Its jars come with pyspark or Kafka 3.9. The module needs only Java and the standard library.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from harness.java import QUICK, Unavailable, find_java

HOST: Final = "127.0.0.1"
MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"

# The jars that ZooKeeper needs. With all of Spark's hundreds on the classpath the JVM starts a second later.
_JARS: Final = (
    "zookeeper", "netty", "slf4j", "log4j", "metrics-core", "snappy-java", "commons-io", "commons-cli", "audience",
)  # fmt: skip
_TAIL: Final = 2000


def pyspark_classpath() -> str:
    """Return the classpath of pyspark's ZooKeeper. Raises Unavailable if pyspark is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable(
            "ZooKeeper's jars come with pyspark, which is not installed: pip install 'ottla[spark]'"
        )
    jars = sorted((Path(spec.origin).parent / "jars").glob("*.jar"))
    return ":".join(str(jar) for jar in jars if jar.name.startswith(_JARS))


class ZooKeeper:
    """One server, which keeps its data between starts.

    ``config`` is the file for its configuration, ``data`` its folder, ``log`` the file for its output. ``settings``
    are ZooKeeper's own keys, ``jvm`` more options of its JVM. A session lasts 2 to 20 ticks, unless
    ``maxSessionTimeout`` sets another limit.
    """

    def __init__(
        self,
        config: Path,
        data: Path,
        log: Path,
        port: int,
        *,
        tick_ms: int = 2000,
        settings: Mapping[str, object] | None = None,
        java: str | None = None,
        classpath: str | None = None,
        jvm: Sequence[str] = (),
    ) -> None:
        """Raises Unavailable if Java is missing, or pyspark when no ``classpath`` is given."""
        self.port = port
        self.log = log
        self.command = [
            java or find_java(),
            "-Xmx256m",
            *QUICK,
            *jvm,
            "-cp",
            classpath or pyspark_classpath(),
            MAIN,
            str(config),
        ]
        self._config = config
        self._keys: dict[str, object] = {
            "dataDir": data,
            "clientPort": port,
            "clientPortAddress": HOST,
            "tickTime": tick_ms,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,mntr",
            **(settings or {}),
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def write_config(self) -> None:
        """Write the configuration; call this before running ``command`` yourself."""
        self._config.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in self._keys.items())
        self._config.write_text(text, encoding="utf-8")

    def start(self, timeout: float = 60.0) -> None:
        """Start the server and wait until it serves. Raises Unavailable."""
        self.write_config()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._config.parent
            )
        deadline = time.monotonic() + timeout
        while not self.serves():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                output = self.log.read_text(errors="replace")[-_TAIL:]
                raise Unavailable(f"ZooKeeper did not start: {output}")
            time.sleep(0.05)

    def serves(self) -> bool:
        with suppress(OSError), socket.create_connection((HOST, self.port), 1.0) as connection:
            connection.settimeout(1.0)
            connection.sendall(b"srvr")
            return b"Mode:" in connection.recv(4096)
        return False

    def stop(self, timeout: float = 60.0) -> None:
        """Send SIGTERM, and wait for the end."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout)
            self.process = None

    def kill(self) -> None:
        """Send SIGKILL; acknowledged writes are on disk."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(10)
