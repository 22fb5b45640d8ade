"""``ottla broker --ephemeral``: for suites in any language."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.messages.metadata import MetadataRequest

AssertGone = Callable[[int, int], None]
OTTLA = str(Path(sys.executable).with_name("ottla"))


class Running:
    """The command as another program runs it."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [OTTLA, "broker", "--ephemeral", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()

    @property
    def port(self) -> int:
        return int(self.line.rpartition(":")[2])

    def topics(self) -> dict[str, int]:
        with Wire(self.port) as wire:
            found = wire.call(MetadataRequest(topics=None), 8).topics
        return {topic.name: len(topic.partitions) for topic in found}

    def end(self) -> tuple[int, str, str]:
        """Return the exit code, and all output except the first line."""
        output, errors = self.process.communicate(timeout=60)
        return self.process.returncode, output, errors


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        started.append(Running(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        for stream in (one.process.stdin, one.process.stdout, one.process.stderr):
            if stream is not None:
                stream.close()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_one_line_and_nothing_left(
    run: Callable[..., Running], sign: signal.Signals, assert_gone: AssertGone, temporary: Path
) -> None:
    broker = run("--topic", "orders:3", "--topic", "payments")
    assert broker.line == f"127.0.0.1:{broker.port}\n"
    assert broker.topics() == {"orders": 3, "payments": 1}
    assert len(list(temporary.iterdir())) == 1
    broker.process.send_signal(sign)
    assert broker.end() == (0, "", "")
    assert_gone(broker.process.pid, broker.port)
    assert not list(temporary.iterdir())


def test_a_signal_while_it_starts(temporary: Path) -> None:
    process = subprocess.Popen(
        [OTTLA, "broker", "--ephemeral"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_for(lambda: list(temporary.iterdir()), "its folder", every=0.001)
    process.terminate()
    process.communicate(timeout=60)
    assert not list(temporary.iterdir())


def test_it_ends_with_its_standard_input(run: Callable[..., Running]) -> None:
    broker = run("--exit-with-stdin")
    assert broker.process.stdin is not None
    broker.process.stdin.write("what is written is nothing to it\n" * 1000)
    broker.process.stdin.flush()
    assert broker.topics() == {}
    broker.process.stdin.close()
    assert broker.process.wait(60) == 0


def test_without_that_option_it_keeps_running(run: Callable[..., Running]) -> None:
    broker = run()
    assert broker.process.stdin is not None
    broker.process.stdin.close()
    with pytest.raises(subprocess.TimeoutExpired):
        broker.process.wait(0.3)
    assert broker.topics() == {}
    broker.process.terminate()
    assert broker.process.wait(60) == 0


def test_it_ends_with_a_program_that_is_killed(assert_gone: AssertGone) -> None:
    """A shell holds the pipe, as a test suite in any language would."""
    script = f'sleep 60 | "{OTTLA}" broker --ephemeral --exit-with-stdin'
    with subprocess.Popen(
        ["bash", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as shell:
        assert shell.stdout is not None
        port = int(shell.stdout.readline().rpartition(":")[2])
        with Wire(port) as wire:
            wire.call(MetadataRequest(topics=None), 8)
        children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
        sleep, broker = sorted(map(int, children), key=lambda pid: "sleep" not in comm(pid))
        os.kill(shell.pid, signal.SIGKILL)
        os.kill(sleep, signal.SIGKILL)
        assert_gone(broker, port)


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


def test_the_ready_file_is_there_while_it_is_ready(run: Callable[..., Running], tmp_path: Path) -> None:
    file = tmp_path / "ready"
    file.write_text("of one that was killed\n")
    broker = run("--ready-file", str(file))
    assert file.read_text() == broker.line
    broker.process.terminate()
    broker.process.wait(60)
    assert list(tmp_path.glob("ready*")) == []


@pytest.mark.parametrize("wrong", [["--listen", "nowhere"], ["--set", "num.partitions=many"]])
def test_a_stale_ready_file_is_removed_even_if_the_broker_does_not_start(
    wrong: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "ready"
    file.write_text("of one that was killed\n")
    done = subprocess.run([OTTLA, "broker", "--ephemeral", "--ready-file", file, *wrong], capture_output=True)
    assert done.returncode != 0
    assert not file.exists()


def test_settings_file_and_address(run: Callable[..., Running], tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=4\nlog.dirs=/nowhere\n")
    broker = run(str(file), "--set", "auto.create.topics.enable=true", "--listen", "127.0.0.1:0")
    with Wire(broker.port) as wire:
        wire.call(MetadataRequest(topics=None), 8)
    assert broker.topics() == {}
    broker.process.terminate()
    assert broker.end() == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--ephemeral", "--data-dir", "x"], 2, "--data-dir"),
        (["--ephemeral", "--topic", "orders:none"], 2, "orders:none"),
        (["--ephemeral", "--topic", ":3"], 2, ":3"),
        (["--ephemeral", "--topic", "orders:0"], 2, "orders:0"),
        (["--topic", "orders"], 2, "--topic requires --ephemeral"),
        (["--exit-with-stdin"], 2, "--exit-with-stdin requires --ephemeral"),
        (["--ready-file", "x"], 2, "--ready-file requires --ephemeral"),
        (["--ephemeral", "--topic", "no good"], 1, "no good"),
        (["--ephemeral", "--ready-file", "/nowhere/ready"], 1, "--ready-file"),
        (["--ephemeral", "--set", "num.partitions=many"], 1, "num.partitions"),
    ],
)
def test_what_is_refused(arguments: list[str], code: int, words: str, temporary: Path) -> None:
    done = subprocess.run(
        [OTTLA, "broker", *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    assert done.returncode == code
    assert done.stdout == ""
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(temporary.iterdir())
