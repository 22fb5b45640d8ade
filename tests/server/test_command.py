"""``ottla broker`` in a shell: its output and its errors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from harness.ports import free_port
from tests.support.commands import Outcome, ottla
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeperProcess

from ottla_broker import events
from ottla_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

OTTLA = str(Path(sys.executable).with_name("ottla"))
OwnBroker = Callable[..., BrokerProcess]


def run(*arguments: str | Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a broker that must not start."""
    command = [OTTLA, "broker", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)


def refused(*arguments: str | Path) -> str:
    """Return its one-line error."""
    done = run(*arguments)
    return error_of(Outcome(done.returncode, done.stdout.encode(), done.stderr))


def error_of(done: Outcome) -> str:
    assert done.code == 1, done.err
    assert done.out == b""
    (line,) = done.err.splitlines()
    assert line.startswith("ottla broker: ")
    return line


@pytest.fixture(autouse=True)
def _new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker is a new process, as the command line starts it."""
    monkeypatch.setattr(BrokerProcess, "forked", False)


@pytest.fixture
def here() -> Iterator[Callable[..., Outcome]]:
    """Runs it in this process, for what ends before anything starts."""
    yield partial(ottla, "", "broker")
    events.configure()


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    return ["--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{free_port()}"]


def test_help() -> None:
    text = run("--help").stdout
    for word in ("--set", "--data-dir", "--listen", "CONFIG.properties"):
        assert word in text


def test_standard_output_has_one_line_and_the_log_is_json(own_broker: OwnBroker) -> None:
    broker = own_broker(settings={"no.such.key": "1"})
    with Wire(broker.port) as wire:
        wire.send(b"\xff" * 20)
        assert wire.is_closed()
    assert broker.stop() == 0
    assert broker.ready_line.count("\n") == 1
    assert broker.bootstrap in broker.ready_line
    assert str(broker.folder) in broker.ready_line
    events = broker.events()
    assert events
    for event in events:
        assert {"event", "level", "timestamp"} <= set(event), event
    assert any("no.such.key" in json.dumps(event) for event in events), "an unknown key is named in a warning"


def test_the_log_as_text(tmp_path: Path) -> None:
    broker = TextBroker(tmp_path / "data", {"no.such.key": "1"}).start()
    try:
        assert broker.stop() == 0
    finally:
        broker.kill()
    first = broker.log().splitlines()[0]
    assert "no.such.key" in first
    with pytest.raises(json.JSONDecodeError):
        json.loads(first)


class TextBroker(BrokerProcess):
    @property
    def command(self) -> list[str]:
        return [*super().command, "--log-format", "text"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("num.partitions=many", ["num.partitions", "many"]),
        ("num.partitions=0", ["num.partitions", "0"]),
        ("log.segment.bytes=1", ["log.segment.bytes"]),
        ("log.cleanup.policy=shred", ["log.cleanup.policy", "shred"]),
        ("compression.type=rar", ["compression.type", "rar"]),
        ("auto.create.topics.enable=perhaps", ["auto.create.topics.enable", "perhaps"]),
        ("listeners=SASL_SSL://127.0.0.1:9093", ["sasl.enabled.mechanisms", "SASL_SSL"]),
        ("listeners=SSL://127.0.0.1:9093", ["ssl.keystore.location", "is missing"]),
        ("zookeeper.connect=localhost:port", ["zookeeper.connect", "localhost:port"]),
        ("process.roles=broker,controller", ["process.roles"]),
        ("authorizer.class.name=com.example.Authorizer", ["authorizer.class.name", "AclAuthorizer"]),
        ("super.users=admin", ["super.users", "User:admin"]),
    ],
)
def test_wrong_settings_are_named(
    setting: str, words: list[str], tmp_path: Path, here: Callable[..., Outcome]
) -> None:
    arguments = ["--data-dir", str(tmp_path / "data"), "--set", setting]
    if not setting.startswith("listeners"):
        arguments += ["--listen", f"127.0.0.1:{free_port()}"]
    line = error_of(here(*arguments))
    for word in words:
        assert word in line
    assert not (tmp_path / "data").exists(), "nothing is made before the configuration holds"


def test_a_start_that_fails_keeps_its_new_id(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    """Otherwise a broker that is started over and over would use up all ids."""
    store = tmp_path / "broker.pem"
    store.write_text("no key")
    settings = {
        "zookeeper.connect": f"{zookeeper.address}/failed-start",
        "listeners": f"SSL://127.0.0.1:{free_port()}",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
    }
    given = [each for name, value in settings.items() for each in ("--set", f"{name}={value}")]
    for _ in range(2):
        assert "ssl.keystore.location" in refused("--data-dir", tmp_path / "data", *given)
        assert "broker.id=1001\n" in (tmp_path / "data" / "meta.properties").read_text()


@pytest.mark.parametrize("arguments", [["--set", "nonsense"], ["--listen", "nowhere"], ["--no-such-option"]])
def test_wrong_arguments_are_usage_errors(
    arguments: list[str], where: list[str], here: Callable[..., Outcome]
) -> None:
    done = here(*where, *arguments)
    assert done.code == 2
    assert arguments[-1] in done.err


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("SSL://127.0.0.1:9092", "takes HOST:PORT without TLS; for SSL, --set listeners="),
        ("PLAINTEXT://nowhere", "is not HOST:PORT"),
        ("127.0.0.1:9092,127.0.0.1:9093", "takes one address; for several, --set listeners="),
    ],
)
def test_an_address_that_can_not_be_listened_on_is_explained(
    address: str, message: str, here: Callable[..., Outcome]
) -> None:
    done = here("--listen", address)
    assert done.code == 2
    assert message in " ".join(done.err.split())


_ALLOWED = ("--set", "allow.anonymous.network=true")


def test_listen_takes_an_address_as_in_listeners() -> None:
    # The host belongs to no machine, so that the broker gets as far as to listen there.
    line = run("--listen", "plaintext://192.0.2.1:9092", *_ALLOWED).stderr.splitlines()[-1]
    assert "192.0.2.1:9092: cannot listen there" in line


def test_wrong_config_files_are_named(where: list[str], tmp_path: Path) -> None:
    missing = tmp_path / "missing.properties"
    assert str(missing) in refused(missing, *where)
    assert str(tmp_path) in refused(tmp_path, *where)
    broken = tmp_path / "broken.properties"
    broken.write_text("num.partitions=1\nlog.dir=\\u12zz\n")
    line = refused(broken, *where)
    assert str(broken) in line
    assert "2" in line
    broken.write_text("num.partitions=x\n")
    line = refused(broken, *where)
    assert str(broken) in line
    assert "num.partitions" in line
    if os.getuid() != 0:
        broken.chmod(0)
        assert str(broken) in refused(broken, *where)


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        line = refused("--data-dir", tmp_path / "data", "--listen", f"127.0.0.1:{port}")
    assert "listeners" in line
    assert str(port) in line


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    done = run("--data-dir", tmp_path / "data", "--listen", "192.0.2.1:9092", *_ALLOWED)
    said, line = done.stderr.splitlines()
    assert "PLAINTEXT://192.0.2.1:9092 is open to the network without a login" in said
    assert "192.0.2.1:9092: cannot listen there" in line


def test_an_open_listener_is_refused(tmp_path: Path) -> None:
    line = refused("--data-dir", tmp_path / "data", "--listen", "[::]:9092")
    assert "PLAINTEXT://[::]:9092 would be open to the network without a login" in line
    assert "allow.anonymous.network=true" in line


def test_a_folder_in_use(own_broker: OwnBroker) -> None:
    broker = own_broker()
    line = refused("--data-dir", broker.folder, "--listen", f"127.0.0.1:{free_port()}")
    assert str(broker.folder) in line
    with Wire(broker.port) as wire:
        asked = DescribeConfigsResource(
            resource_type=4, resource_name="1001", configuration_keys=["broker.id"]
        )
        wire.call(DescribeConfigsRequest(resources=[asked]), 4)
    assert broker.stop() == 0


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    line = refused("--data-dir", file, "--listen", f"127.0.0.1:{free_port()}")
    assert str(file) in line
    assert file.read_text() == "not a folder"


def test_a_folder_of_another_broker_id(own_broker: OwnBroker) -> None:
    broker = own_broker(settings={"broker.id": 7})
    assert broker.stop() == 0
    line = refused("--data-dir", broker.folder, "--listen", broker.bootstrap, "--set", "broker.id=8")
    assert "broker.id" in line
    assert "7" in line
    broker.start()
    assert "broker 7 " in broker.ready_line


def test_damaged_metadata_of_the_folder(own_broker: OwnBroker) -> None:
    broker = own_broker()
    assert broker.stop() == 0
    path = broker.folder / "meta.properties"
    path.write_text("version=99\nbroker.id=what\n")
    line = refused("--data-dir", broker.folder, "--listen", broker.bootstrap)
    assert "meta.properties" in line


def test_kafkas_own_properties_file(tmp_path: Path) -> None:
    """The keys of the file that Kafka is shipped with, less what asks for ZooKeeper."""
    port = free_port()
    file = tmp_path / "server.properties"
    file.write_text(
        f"""############################# Server Basics #############################
broker.id=0
listeners=PLAINTEXT://127.0.0.1:{port}
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={tmp_path}/kafka-logs
num.partitions=3
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
#log.flush.interval.ms=1000
log.retention.hours=168
#log.retention.bytes=1073741824
#log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
group.initial.rebalance.delay.ms=0
"""
    )
    broker = FileBroker(file, tmp_path / "kafka-logs", port).start()
    try:
        with Wire(port) as wire:
            asked = DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
            (result,) = wire.call(DescribeConfigsRequest(resources=[asked]), 4).results
        found = {config.name: config.value for config in result.configs}
        assert found["log.retention.check.interval.ms"] == "300000"
        assert found["num.partitions"] == "5", "--set overrides the file"
        assert broker.stop() == 0
    finally:
        broker.kill()


class FileBroker(BrokerProcess):
    """Started with a file, and one setting on top."""

    def __init__(self, file: Path, folder: Path, port: int) -> None:
        super().__init__(folder, port=port)
        self.file = file

    @property
    def command(self) -> list[str]:
        return [OTTLA, "broker", str(self.file), "--set", "num.partitions=5"]


def test_without_its_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla_broker.config.broker import BrokerConfig
    from ottla_broker.daemon import run
    from ottla_broker.server import StartError

    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(StartError, match=r"uvloop.*ottla\[broker\]"):
        run(BrokerConfig.from_properties({}))
