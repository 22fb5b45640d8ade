"""Runs the tests against Apache Kafka 3.9.1 or 4.x in place of Ottla.

:class:`KafkaMember` is a broker of 3.9.1 in a cluster on ZooKeeper, beside Ottla brokers.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from harness import maven, wire
from harness.brokers import HOST, Kafka, KafkaOnZooKeeper, new_id
from harness.java import QUICK, find_java
from harness.ports import free_port
from tests.support.class_archive import archive_options
from tests.support.processes import BrokerProcess

# Defaults that don't suit a single broker.
_ONE_BROKER = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A broker that was killed can't register again before its session ends, which takes 9 s by default.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}


# Tests start many brokers on two cores: they take little memory and compile little.
_QUICK = [*QUICK, "-Djava.awt.headless=true"]


class QuickKafka(Kafka):
    """Kafka formats a folder of each version once, which takes a JVM of its own; the others are copies.

    Its classes come from an archive.
    """

    jvm = ("-Xmx768m", *_QUICK)
    look_every = 0.02
    _formatted: ClassVar[dict[Path, dict[Path, bytes]]] = {}

    def command(self) -> list[str]:
        return self._with([*self.jvm, *class_archive(self._java, self._libs)])

    def _with(self, jvm: Sequence[str]) -> list[str]:
        return self._main("kafka.Kafka", str(self._config), jvm=jvm)

    def format(self) -> None:
        if {"log.dirs", "node.id"} & self.settings.keys():
            super().format()
            return
        made = self._formatted.get(self._libs)
        if made is None:
            super().format()
            files = (each for each in self.data.rglob("*") if each.is_file())
            self._formatted[self._libs] = {each.relative_to(self.data): each.read_bytes() for each in files}
            return
        for name, content in made.items():
            file = self.data / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if name.name == "meta.properties":
                content = re.sub(rb"(?m)^(cluster|directory)[.]id=.*", _with_new_id, content)
            file.write_bytes(content)


class QuickKafkaOnZooKeeper(KafkaOnZooKeeper):
    """The same of a broker in a cluster on ZooKeeper, which formats nothing."""

    jvm = QuickKafka.jvm
    look_every = QuickKafka.look_every

    def command(self) -> list[str]:
        return self._main(
            "kafka.Kafka", str(self._config), jvm=[*self.jvm, *class_archive(self._java, self._libs)]
        )


class _FirstKafka(QuickKafka):
    """The broker whose run fills the archive."""

    options: Sequence[str] = ()

    def command(self) -> list[str]:
        return self._with([*self.jvm, *self.options])


def class_archive(java: str, libs: Path) -> list[str]:
    """Options of a JVM that runs a broker of the version that has these jars."""
    name = libs.parent.name

    def run(options: list[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            broker = _FirstKafka(Path(folder), _ONE_BROKER, free_port(), name.removeprefix("kafka-"))
            broker.options = options
            try:
                broker.start()
                connection = wire.Connection(HOST, broker.port)
                connection.create("first", 1)
                connection.close()
            finally:
                broker.stop()

    return archive_options(name, java, sorted(libs.glob("*.jar")), run)


def _with_new_id(line: re.Match[bytes]) -> bytes:
    return line[1] + b".id=" + new_id().encode()


class KafkaProcess:
    """Has those methods of :class:`tests.support.processes.BrokerProcess` that tests need."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        port: int | None = None,
        version: str = maven.KAFKA_VERSION,
    ) -> None:
        self.folder = folder
        # Kafka 4 allows segments under 1 MiB only by this name, which is for tests (KIP-1030).
        self.other_names = {} if version.startswith("3.") else {"segment.bytes": "internal.segment.bytes"}
        self.settings = dict(settings or {})
        given = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in self.settings.items()
        }
        self._broker = QuickKafka(folder, {**_ONE_BROKER, **given}, port or free_port(), version)
        self.port = self._broker.port

    @property
    def bootstrap(self) -> str:
        return self._broker.address

    @property
    def pid(self) -> int:
        return self._broker.pid

    def start(self, timeout: float = 180.0) -> KafkaProcess:
        self._broker.start(timeout)
        return self

    def stop(self, timeout: float = 60.0, sign: signal.Signals = signal.SIGTERM) -> int:
        self._broker.stop(timeout)
        return 0

    def kill(self) -> None:
        self._broker.kill()

    def log(self) -> str:
        return self._broker.tail(100)

    def complaints(self) -> list[str]:
        """Return nothing: Kafka's log is not under test."""
        return []


_LOG4J = """log4j.rootLogger=INFO, server
log4j.appender.server=org.apache.log4j.FileAppender
log4j.appender.server.File={folder}/server.log
log4j.appender.server.layout=org.apache.log4j.PatternLayout
log4j.appender.server.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.appender.state=org.apache.log4j.FileAppender
log4j.appender.state.File={folder}/state-change.log
log4j.appender.state.layout=org.apache.log4j.PatternLayout
log4j.appender.state.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.org.apache.zookeeper=WARN
log4j.logger.kafka.controller=TRACE, server
log4j.additivity.kafka.controller=false
log4j.logger.state.change.logger=TRACE, state
log4j.additivity.state.change.logger=false
"""
_JVM = ["-Xmx384m", *_QUICK]

_STARTED = "started (kafka.server.KafkaServer)"
# Kafka exits when its start takes longer than its ZooKeeper session, or while a killed broker's node still exists.
# Start it again then.
_AGAIN = ("SessionExpiredException", "NodeExistsException")


class KafkaMember(BrokerProcess):
    """A broker of Kafka 3.9.1 in ZooKeeper mode.

    Its logs are ``NAME.logs/server.log`` and ``state-change.log`` beside its folder.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None = None, port: int | None = None
    ) -> None:
        super().__init__(folder, settings, port)
        self._java = find_java()
        self._libs = maven.kafka_jars()
        self._logs = folder.parent / f"{folder.name}.logs"
        self._began = 0

    def start(self, timeout: float = 180.0) -> KafkaMember:
        """Start the broker, and wait until it reports that it has started."""
        self.spawn()
        return self.wait_started(timeout)

    def wait_started(self, timeout: float = 180.0) -> KafkaMember:
        """Wait after :meth:`spawn` until the broker reports that it has started."""
        deadline = time.monotonic() + timeout
        while True:
            running, said = self.running, self.log()[self._began :]
            if _STARTED in said:
                return self
            if time.monotonic() > deadline or not (running or any(each in said for each in _AGAIN)):
                self.kill()
                raise RuntimeError(f"Kafka did not start:\n{self.log()[-4000:]}")
            if not running:
                self.spawn()
            time.sleep(0.05)

    def spawn(self) -> None:
        """Start the broker without waiting."""
        self._logs.mkdir(parents=True, exist_ok=True)
        self._began = len(self.log())
        log4j, config = self._logs / "log4j.properties", self._logs / "server.properties"
        log4j.write_text(_LOG4J.format(folder=self._logs))
        given = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": self.folder,
            **self.settings,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        with (self._logs / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(self._java, *_JVM, *class_archive(self._java, self._libs)),
                    f"-Dlog4j.configuration=file:{log4j}",
                    *("-cp", f"{self._libs}/*", "kafka.Kafka", str(config)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for the broker's end, and return the exit code."""
        assert self._process is not None
        try:
            return self._process.wait(timeout)
        finally:
            self._release()

    def log(self) -> str:
        """Return its log, without state changes."""
        file = self._logs / "server.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def complaints(self) -> list[str]:
        """Return nothing: Kafka's log is not under test."""
        return []
