"""A real ZooKeeper, alone: for tests, benchmarks, and ``make cluster``.

Its jars come with pyspark, or with Kafka 3.9; Java 17 or later runs it. Nothing but the standard library is imported.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
LEAST_JAVA: Final = 17

# What ZooKeeper needs of Spark's hundreds of jars: a JVM that indexes all of them starts a second later.
_JARS: Final = (
    "zookeeper", "netty", "slf4j", "log4j", "metrics-core", "snappy-java", "commons-io", "commons-cli", "audience",
)  # fmt: skip
_TAIL: Final = 2000


class Unavailable(Exception):
    """ZooKeeper can't run here, or has not started; the message says why."""


@cache
def find_java() -> str:
    """Java's path, from JAVA_HOME or else the PATH. Raises Unavailable if there is none that is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise Unavailable(f"ZooKeeper needs Java {LEAST_JAVA} or later, and there is none {where}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < LEAST_JAVA:
        version = found[1] if found else "unknown"
        raise Unavailable(f"ZooKeeper needs Java {LEAST_JAVA} or later; {java} is version {version}")
    return java


def sparks_jars() -> str:
    """The classpath of pyspark's ZooKeeper. Raises Unavailable where pyspark is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable(
            "ZooKeeper's jars come with pyspark, which is not installed: pip install 'ottla[spark]'"
        )
    jars = sorted((Path(spec.origin).parent / "jars").glob("*.jar"))
    return ":".join(str(jar) for jar in jars if jar.name.startswith(_JARS))


class ZooKeeper:
    """One server. Its data stays from one start to the next.

    ``config`` is where its configuration goes, ``data`` its folder, ``log`` what it says. ``settings`` are keys of its
    own. Sessions last from 2 to 20 ticks, unless ``maxSessionTimeout`` says otherwise.
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
    ) -> None:
        """Raises Unavailable where Java or, without a ``classpath``, pyspark is missing."""
        self.port = port
        self.log = log
        self.command = [
            java or find_java(),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            classpath or sparks_jars(),
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
        """What :meth:`start` does first, for those who run ``command`` by themselves."""
        self._config.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in self._keys.items())
        self._config.write_text(text, encoding="utf-8")

    def start(self, timeout: float = 60.0) -> None:
        """Start it and come back when it serves. Raises Unavailable."""
        self.write_config()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._config.parent
            )
        deadline = time.monotonic() + timeout
        while not self.serves():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                said = self.log.read_text(errors="replace")[-_TAIL:]
                raise Unavailable(f"ZooKeeper did not start: {said}")
            time.sleep(0.05)

    def serves(self) -> bool:
        with suppress(OSError), socket.create_connection((HOST, self.port), 1.0) as connection:
            connection.settimeout(1.0)
            connection.sendall(b"srvr")
            return b"Mode:" in connection.recv(4096)
        return False

    def kill(self) -> None:
        """SIGKILL; what was acknowledged is on the disk."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(10)
