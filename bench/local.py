"""``make cluster`` and ``make secure-cluster``: run ZooKeeper, three brokers and the console here, until Ctrl-C.

ZooKeeper's jars come with pyspark; Java 17 or later runs them. One folder holds all data, logs and broker properties,
so the next start continues with the same cluster. A process that dies restarts after a while, so that you can watch
the others cope without it.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from harness.children import ending_with_parent
from harness.java import Unavailable
from harness.zookeeper import HOST, ZooKeeper

from bench.local_options import Options, check_free, read_options
from ottla_client.errors import ClientError
from ottla_client.sync import Admin

if TYPE_CHECKING:
    from bench.secure import SecureFiles

_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 30.0
# From a broker's port to that of its metrics: 9404 for 9092. If it is taken, the broker goes on without.
_METRICS_FROM_PORT: Final = 312
# The delay before a dead process restarts.
_AWAY_SECONDS: Final = 10.0

_OPEN: Final = "listeners=PLAINTEXT://{host}:{port}\n"
_BROKER: Final = """broker.id={number}
{listeners}zookeeper.connect={host}:{zookeeper}
log.dirs={folder}
default.replication.factor={copies}
min.insync.replicas={least}
offsets.topic.replication.factor={copies}
metrics.listener={host}:{metrics}
"""

_USAGE: Final = """
the cluster serves at {bootstrap}

  export OTTLA_BOOTSTRAP_SERVER={bootstrap}
  ottla cluster --watch
  ottla topics create flights --partitions 6
  seq 100000 | ottla produce flights
  ottla consume flights --exit | wc -l
  kill -9 {pid}{blank}kills a broker, which restarts after {away:.0f} s

data and logs are in {folder}; Ctrl-C stops everything
"""


_SECURE_USAGE: Final = """
the cluster serves at {bootstrap}: mutual TLS between brokers, SCRAM over TLS for clients, ACLs

  ottla cluster --command-config {folder}/secure/admin.properties
  ottla security check --command-config {folder}/secure/admin.properties

docs/security.md goes on from here; data, logs and certificates are in {folder}; Ctrl-C stops everything
"""


class Stopped(Exception):
    """SIGINT, SIGTERM or SIGHUP arrived."""


class Member:
    """A process of the cluster. ``serves`` returns whether it serves; ``log`` is the file with its output."""

    def __init__(self, name: str, command: list[str], log: Path, serves: Callable[[], bool]) -> None:
        self.name, self.log = name, log
        self._command, self._serves = command, serves
        self._process: subprocess.Popen[bytes] | None = None
        self._died: float | None = None

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def spawn(self) -> None:
        with self.log.open("ab") as log:
            # In its own session, so that Ctrl-C reaches only this process, which stops the others in order.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ending_with_parent(),
            )
        self._died = None

    def wait_until_serving(self) -> None:
        """Wait until it serves. Raises Unavailable if it ends or takes too long."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._serves():
            if self._process is None or self._process.poll() is not None:
                raise Unavailable(f"{self.name} did not start: {self._last_line()} (see {self.log})")
            if time.monotonic() > deadline:
                raise Unavailable(f"{self.name} does not serve after {_START_SECONDS:.0f} s (see {self.log})")
            time.sleep(0.05)

    def supervise(self) -> None:
        """Report its death, and restart it later. Raises Unavailable if it doesn't start."""
        if self._process is None or self._process.poll() is None:
            return
        if self._died is None:
            self._died = time.monotonic()
            code = self._process.returncode
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            say(f"{self.name} has died ({how}); restarting in {_AWAY_SECONDS:.0f} s")
        elif time.monotonic() - self._died > _AWAY_SECONDS:
            self.spawn()
            self.wait_until_serving()
            say(f"{self.name} is back (pid {self.pid})")

    def stop(self) -> None:
        """Send SIGTERM without waiting."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Wait for its end, and kill it if that takes too long."""
        if self._process is None:
            return
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            say(f"{self.name} did not stop within {_STOP_SECONDS:.0f} s and is killed")
            self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _last_line(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return lines[-1].strip() if lines else "it printed nothing"


class LocalCluster:
    """ZooKeeper, and brokers 1, 2, 3, … on successive ports."""

    def __init__(self, options: Options) -> None:
        """With ``--secure``, brokers have listeners for each other, and everyone logs in.

        The console for the browser runs as well, unless its port is taken. Raises Unavailable for other ports.
        """
        self.folder = folder = options.data.absolute()
        self.bootstrap = ",".join(f"{HOST}:{each}" for each in options.ports)
        self._inside = ",".join(f"{HOST}:{each}" for each in options.inside_ports)
        self._files: SecureFiles | None = None
        if options.secure:
            # Imported here, because it needs the package cryptography.
            from bench.secure import SecureFiles

            self._files = SecureFiles(folder / "secure", self.bootstrap, self._inside)
        options.check_ports()
        server = ZooKeeper(
            folder / "zookeeper.properties",
            folder / "zookeeper",
            folder / "zookeeper.log",
            options.zookeeper_port,
        )
        server.write_config()
        if self._files is not None:
            self._files.make()
        self.zookeeper = Member("ZooKeeper", server.command, server.log, server.serves)
        copies = min(3, options.brokers)
        self.brokers = []
        for number, each in enumerate(options.ports, 1):
            config = folder / f"broker-{number}.properties"
            config.write_text(
                _BROKER.format(
                    number=number,
                    host=HOST,
                    listeners=self._listeners(number - 1, each),
                    zookeeper=options.zookeeper_port,
                    metrics=each + _METRICS_FROM_PORT,
                    folder=folder / f"broker-{number}",
                    copies=copies,
                    least=max(1, copies - 1),
                ),
                encoding="utf-8",
            )
            self.brokers.append(_broker(number, config, folder / f"broker-{number}.log", each))
        self.console: Member | None = None
        self.console_said = ""
        if options.console_port:
            self._add_console(options.console_port, options.zookeeper_port)

    def _add_console(self, port: int, zookeeper_port: int) -> None:
        try:
            check_free(port)
        except Unavailable:
            self.console_said = f"the console is left out: port {port} is taken (--console-port)"
            return
        options = ["--zookeeper", f"{HOST}:{zookeeper_port}"]
        if self._files is not None:
            options = [
                *("-X", "security.protocol=SASL_SSL", "-X", "sasl.mechanism=SCRAM-SHA-512"),
                *("-X", f"ssl.ca.location={self._files.folder / 'ca.pem'}"),
            ]
        command = [
            *(sys.executable, "-m", "ottla_cli", "console", "-b", self.bootstrap),
            *("--listen", f"{HOST}:{port}", *options),
        ]
        self.console = Member("the console", command, self.folder / "console.log", _serving(port))
        self.console_said = f"the console is at http://{HOST}:{port}/"

    def _listeners(self, place: int, port: int) -> str:
        if self._files is None:
            return _OPEN.format(host=HOST, port=port)
        from bench.secure import BROKER

        inside = self._inside.split(",")[place].rpartition(":")[2]
        return BROKER.format(host=HOST, port=port, inside=inside, folder=self._files.folder)

    def start(self) -> None:
        """Start all processes. Raises Unavailable."""
        self.zookeeper.spawn()
        self.zookeeper.wait_until_serving()
        say("ZooKeeper serves")
        began = time.monotonic()
        for broker in self.brokers:
            broker.spawn()
        for broker in self.brokers:
            broker.wait_until_serving()
        self._wait_until_complete()
        if self._files is not None:
            self._files.create_admin(self._inside)
        say(f"{len(self.brokers)} brokers serve, {time.monotonic() - began:.1f} s after ZooKeeper")
        if self.console is not None:
            self.console.spawn()
            self.console.wait_until_serving()

    def _wait_until_complete(self) -> None:
        """Wait until the brokers know each other and a controller."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            with suppress(ClientError), self._admin() as admin:
                found = admin.describe_cluster(timeout=5)
                if len(found.nodes) == len(self.brokers) and found.controller_id is not None:
                    return
            time.sleep(0.05)
        raise Unavailable(f"the brokers did not form a cluster within {_START_SECONDS:.0f} s")

    def _admin(self) -> Admin:
        return Admin(self.bootstrap) if self._files is None else Admin(self._inside, **self._files.tls())

    def supervise(self) -> None:
        for member in self.members():
            member.supervise()

    def stop(self) -> None:
        """Stop the brokers first: each hands over its partitions while others run."""
        if self.console is not None:
            self.console.stop()
            self.console.wait()
        for broker in self.brokers:
            broker.stop()
        for broker in self.brokers:
            broker.wait()
        self.zookeeper.stop()
        self.zookeeper.wait()

    def kill(self) -> None:
        for member in self.members():
            member.kill()

    def members(self) -> Iterator[Member]:
        yield self.zookeeper
        yield from self.brokers
        if self.console is not None:
            yield self.console


def _broker(number: int, config: Path, log: Path, port: int) -> Member:
    command = [sys.executable, "-m", "ottla_broker", str(config)]
    return Member(f"broker {number}", command, log, _serving(port))


def _serving(port: int) -> Callable[[], bool]:
    def serves() -> bool:
        with suppress(OSError):
            socket.create_connection((HOST, port), 1.0).close()
            return True
        return False

    return serves


def say(line: str) -> None:
    print(line, flush=True)


def _stopped(number: int, frame: FrameType | None) -> None:
    raise Stopped


def main() -> int:
    options = read_options()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stopped)
    cluster = None
    try:
        cluster = LocalCluster(options)
        cluster.start()
        pid = cluster.brokers[-1].pid
        say(
            (_SECURE_USAGE if options.secure else _USAGE).format(
                bootstrap=cluster.bootstrap,
                pid=pid,
                blank=" " * (33 - len(str(pid))),
                away=_AWAY_SECONDS,
                folder=options.data,
            )
        )
        if cluster.console_said:
            say(cluster.console_said)
        while True:
            cluster.supervise()
            time.sleep(0.2)
    except Unavailable as lack:
        print(f"{options.target}: {lack}", file=sys.stderr)
        return 1
    except Stopped:
        say("stopping")
        return 0
    finally:
        if cluster is not None:
            _stop(cluster)


def _stop(cluster: LocalCluster) -> None:
    """Stop the cluster cleanly, or at once after another Ctrl-C."""
    try:
        cluster.stop()
    except Stopped:
        say("killing")
    finally:
        cluster.kill()


if __name__ == "__main__":
    sys.exit(main())
