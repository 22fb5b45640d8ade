"""Java's producer when a network holds its requests back: tests/clients/test_late_frames.py with another client."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.ports import free_port
from tests.interop.conftest import KIND
from tests.interop.support import PROGRAMS, Java, needed, run
from tests.support import late_scenarios as late
from tests.support.late_frames import LateFrames

IS_KAFKA = KIND.__name__ == "Kafka"


class JavaDriver:
    """programs/TransactionalProducer.java, step by step."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._step("init")

    def _step(self, step: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(step + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if answer != "ok":
            raise late.StepFailed(f"{step}: {answer}")

    def begin(self) -> None:
        self._step("begin")

    def send(self, value: str) -> None:
        self._step(f"send {value}")

    def flush(self) -> None:
        self._step("flush")

    def offsets(self, offset: int) -> None:
        self._step(f"offsets {late.GROUP} {offset}")

    def commit(self) -> None:
        self._step("commit")

    def abort(self) -> None:
        self._step("abort")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, java_libs: Path) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    source = PROGRAMS / "TransactionalProducer.java"
    run([needed("javac"), "-cp", f"{java_libs}/*", "-d", str(folder), str(source)])
    return folder


@pytest.fixture
def network() -> Iterator[LateFrames]:
    with LateFrames() as network:
        yield network


@pytest.fixture
def address(tmp_path: Path, network: LateFrames) -> Iterator[str]:
    """The broker's own address, without the network that delays."""
    network.target = free_port()
    settings = {key: str(value) for key, value in late.SETTINGS.items()}
    settings["advertised.listeners"] = f"PLAINTEXT://{network.address}"
    broker = KIND(tmp_path / "broker", settings, network.target)
    broker.start()
    late.make_topic(broker)
    yield broker.address
    broker.remove()


@pytest.fixture
def producer(address: str, java: Java, compiled: Path, network: LateFrames) -> Iterator[late.Driver]:
    driver = JavaDriver(
        java.command("TransactionalProducer", network.address, "late", late.TOPIC, classes=compiled)
    )
    yield driver
    driver.close()


CASES: list[tuple[Callable[[late.Driver, LateFrames], None], list[str]]] = [
    (late.late_commit, ["a", "c"]),
    (late.late_abort, ["b", "c"]),
    (late.late_records, ["b"]),
]


@pytest.mark.parametrize(("case", "right"), CASES, ids=[case.__name__ for case, _ in CASES])
def test_late(
    case: Callable[[late.Driver, LateFrames], None],
    right: list[str],
    producer: late.Driver,
    network: LateFrames,
    address: str,
) -> None:
    if not IS_KAFKA:
        case(producer, network)
        assert late.read_committed(address) == right
        return
    try:
        case(producer, network)
    except late.StepFailed:
        return
    assert late.read_committed(address) != right


def test_late_offsets(producer: late.Driver, network: LateFrames, address: str) -> None:
    late.late_offsets(producer, network)
    assert late.committed_offset(address) == (1 if IS_KAFKA else 2)
