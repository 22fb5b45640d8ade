"""Runs an Ottla or Apache Kafka broker as a child process, behind one interface."""

from __future__ import annotations

import base64
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from harness import maven
from harness.children import ending_with_parent
from harness.java import find_java
from harness.ports import free_port

HOST = "127.0.0.1"

# kafka-server-start.sh and kafka-run-class.sh of Kafka 3.9 start a broker with these.
_JVM = [
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
]  # fmt: skip

_KRAFT = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""

_ZOOKEEPER = """listeners=PLAINTEXT://{host}:{port}
log.dirs={data}
"""

_LOG4J = """log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d %p %c: %m%n
"""

# The same for Log4j 2, which Kafka 4 uses.
_LOG4J2 = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c: %m%n
"""


class BrokerFailed(Exception):
    """A broker ended or never came up; the message ends with its last lines of output."""


class Broker(ABC):
    """One broker process with its own folder, which stays when the process ends.

    ``settings`` are Kafka's configuration keys, such as ``num.partitions``. With ``ends_with_parent`` the broker ends
    when this program is killed.
    """

    name = ""
    look_every = 0.001
    """Seconds between two looks whether it accepts connections: short, because starts are measured."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str] | None = None,
        port: int | None = None,
        ends_with_parent: bool = False,
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.settings = dict(settings or {})
        self.port = port or free_port()
        self._ends_with_parent = ends_with_parent
        self.spawned_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def output(self) -> Path:
        """The file with stdout and stderr of every start."""
        return self.folder / "broker.out"

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that runs the broker in the foreground."""

    def spawn(self) -> None:
        """Start the process without waiting until it accepts clients."""
        command = self.command()
        with self.output.open("ab") as output:
            self.spawned_at = time.perf_counter()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                preexec_fn=ending_with_parent() if self._ends_with_parent else None,
            )

    def start(self, timeout: float = 120.0) -> None:
        """Start the process and wait until its port accepts a connection."""
        self.spawn()
        self.wait_until_accepting(timeout)

    def wait_until_accepting(self, timeout: float = 120.0) -> None:
        """Poll the port. Raises BrokerFailed if the process ends or ``timeout`` seconds pass."""
        deadline = time.perf_counter() + timeout
        while time.perf_counter() < deadline:
            self.check_alive()
            with suppress(OSError):
                socket.create_connection((HOST, self.port), 1.0).close()
                return
            time.sleep(self.look_every)
        raise BrokerFailed(
            f"{self.name} did not listen on {self.address} within {timeout:.0f} s\n{self.tail()}"
        )

    def check_alive(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            code = "not started" if process is None else f"exit code {process.returncode}"
            raise BrokerFailed(f"{self.name} is not running ({code})\n{self.tail()}")

    def tail(self, lines: int = 15) -> str:
        """The last lines of the process's output."""
        if not self.output.exists():
            return ""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, timeout: float = 60.0) -> float:
        """Send SIGTERM, then SIGKILL after ``timeout`` seconds. Returns the seconds it took to end."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self._end(signal.SIGKILL, 30.0)

    def send_signal(self, sign: signal.Signals) -> None:
        """Send the process a signal without waiting."""
        self.check_alive()
        assert self._process is not None
        self._process.send_signal(sign)

    def _end(self, sign: signal.Signals, timeout: float) -> float:
        process, self._process = self._process, None
        if process is None:
            return 0.0
        began = time.perf_counter()
        process.send_signal(sign)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return time.perf_counter() - began

    def remove(self) -> None:
        """Stop the process if it runs, and delete its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Ottla(Broker):
    """``ottla broker`` from this program's own environment."""

    name = "ottla"

    def command(self) -> list[str]:
        command = [str(Path(sys.executable).parent / "ottla"), "broker", "--data-dir", str(self.data)]
        if "listeners" not in self.settings:
            command += ["--listen", self.address]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        return command


def new_id() -> str:
    """An id as Kafka writes those of clusters and folders."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "A")


class Kafka(Broker):
    """Apache Kafka from Maven Central: one KRaft node that is broker and controller, with stock JVM options.

    The constructor raises Unavailable if Java or Maven is missing.
    """

    name = "kafka"
    jvm: Sequence[str] = _JVM

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str] | None = None,
        port: int | None = None,
        version: str = maven.KAFKA_VERSION,
    ) -> None:
        self._java = find_java()
        self._libs = maven.kafka_jars(version)
        super().__init__(folder, settings, port)
        self._config = folder / "server.properties"
        self._log4j = folder / "log4j.properties"
        self._old_log4j = version.startswith("3.")
        self._log4j.write_text(_LOG4J if self._old_log4j else _LOG4J2)
        text = self._fixed()
        self._config.write_text(text + "".join(f"{key}={value}\n" for key, value in self.settings.items()))

    def _fixed(self) -> str:
        """The part of the configuration that callers don't choose."""
        return _KRAFT.format(host=HOST, port=self.port, controller_port=free_port(), data=self.data)

    def _main(self, *arguments: str, jvm: Sequence[str]) -> list[str]:
        key = "log4j.configuration" if self._old_log4j else "log4j2.configurationFile"
        log4j = f"-D{key}=file:{self._log4j}"
        return [self._java, *jvm, log4j, "-cp", f"{self._libs}/*", *arguments]

    def spawn(self) -> None:
        if not (self.data / "meta.properties").exists():
            self.format()
        super().spawn()

    def format(self) -> None:
        """Make the folder's first files, with an id for a new cluster."""
        arguments = ["kafka.tools.StorageTool", "format", "-t", new_id(), "-c", str(self._config)]
        jvm = ["-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        done = subprocess.run(self._main(*arguments, jvm=jvm), capture_output=True, text=True)
        if done.returncode:
            raise BrokerFailed(f"kafka could not format its folder: {done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return self._main("kafka.Kafka", str(self._config), jvm=self.jvm)


class KafkaOnZooKeeper(Kafka):
    """Apache Kafka 3.9 in a cluster on ZooKeeper; ``settings`` contains ``zookeeper.connect``."""

    def _fixed(self) -> str:
        return _ZOOKEEPER.format(host=HOST, port=self.port, data=self.data)

    def spawn(self) -> None:
        # Unlike a KRaft node, it needs no formatted folder.
        Broker.spawn(self)


@contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    """Start a broker for the block, then stop it and delete its folder."""
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()
