"""`make cluster`'s program: it serves, reports deaths, leaves nothing behind, and has one-line errors."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from harness.ports import free_port
from tests.cli.ottla_command import Ottla
from tests.support.waiting import wait_for
from tests.support.zookeeper import java

ROOT = Path(__file__).resolve().parents[2]

Start = Callable[..., "subprocess.Popen[str]"]


def free_ports(count: int) -> int:
    """The first of ``count`` consecutive free ports."""
    while True:
        first = free_port()
        try:
            for port in range(first + 1, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            continue
        return first


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs it with two brokers, in a folder of its own."""
    running: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bench.local",
                "--data",
                str(tmp_path / "data"),
                "--brokers",
                "2",
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_local_cluster(start: Start, end: signal.Signals) -> None:
    java()
    port, zookeeper = free_ports(2), free_port()
    # Its start takes a second of CPU: once is enough.
    console = free_port() if end is signal.SIGINT else 0
    process = start("--port", str(port), "--zookeeper-port", str(zookeeper), "--console-port", str(console))
    assert process.stdout is not None
    said = next((line for line in process.stdout if line.startswith("the cluster serves at")), "")
    assert said, process.communicate(timeout=60)[1]
    ottla = Ottla(said.split()[-1])
    assert [each["address"] for each in ottla.json("cluster")["brokers"]] == [
        f"127.0.0.1:{port}",
        f"127.0.0.1:{port + 1}",
    ]
    children = psutil.Process(process.pid).children()
    assert len(children) == (4 if console else 3)
    if console:
        assert f"the console is at http://127.0.0.1:{console}/\n" in process.stdout
        with urlopen(f"http://127.0.0.1:{console}/brokers", timeout=60) as page:
            assert f"127.0.0.1:{port + 1}" in page.read().decode()
    victim = next(each for each in children if "broker-2.properties" in " ".join(each.cmdline()))
    victim.kill()
    assert any("broker 2 has died (SIGKILL)" in line for line in process.stdout)
    process.send_signal(end)
    _, errors = process.communicate(timeout=60)
    assert errors == ""
    assert process.returncode == (0 if end is signal.SIGINT else -end)
    wait_for(lambda: not any(map(alive, children)), "all processes to end", 60)


def alive(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def test_a_missing_requirement_is_a_one_line_error(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments in (("--zookeeper-port", str(port)), ("--port", str(port))):
            ports = {
                "--port": str(free_ports(2)),
                "--zookeeper-port": str(free_port()),
                arguments[0]: arguments[1],
            }
            process = start(*(part for pair in ports.items() for part in pair), "--console-port", "0")
            assert f"port {port} of 127.0.0.1: Address already in use" in failure(process)
        secure = failure(start("--secure", "--port", str(free_ports(2)), "--zookeeper-port", str(port)))
        assert secure.startswith("make secure-cluster: port ")
        assert 'make secure-cluster ARGS="--port 19092 --zookeeper-port 12181 --inside-port 19192"' in secure
    ports_free = ("--port", str(free_ports(2)), "--zookeeper-port", str(free_port()))
    assert "none in JAVA_HOME" in failure(start(*ports_free, JAVA_HOME=str(tmp_path)))
    old = tmp_path / "bin/java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    assert "is version 11" in failure(start(*ports_free, JAVA_HOME=str(tmp_path)))


def test_ports_are_checked_before_anything_is_installed(tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        others = f"--zookeeper-port {free_port()} --inside-port {free_ports(3)}"
        done = subprocess.run(
            ["make", "secure-cluster", f"ARGS=--port {port} {others}", f"VENV={environment}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode != 0
    assert done.stderr.startswith(f"make secure-cluster: port {port} of 127.0.0.1: Address already in use")
    assert not environment.exists()


def failure(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.count("\n") == 1
    return errors
