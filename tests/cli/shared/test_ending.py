"""No wait is without a word or an end: Ctrl-C with brokers that don't answer, and commands with nothing to do."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest
from tests.cli.ottla_command import OTTLA, Ottla
from tests.conftest import QUICK
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import readable, wait_for

pytestmark = pytest.mark.ottla_only
HOUR = ("--timeout", "3600", "-X", "request_timeout_ms=3600000", "-X", "session_timeout_ms=1800000")
PRODUCED = (*HOUR[:4], "-X", "delivery_timeout_ms=7200000")

STUBBORN = """
import asyncio
from ottla_cli.shared.terminal import run
from ottla_cli.shared.ending import Ending

async def main():
    print("begun", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("cancelled", flush=True)

ending = Ending()
ending.last_words = "half done"
run(main(), ending=ending)
"""
BUSY = """
import asyncio
from ottla_cli.shared.terminal import run

async def main():
    print("begun", flush=True)
    while True:
        pass

run(main())
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that a test may freeze."""
    settings = {**QUICK, "group.max.session.timeout.ms": 1_800_000}
    made = BrokerProcess(tmp_path / "data", settings).start()
    create_topic(made, "t", 1)
    yield made
    made.send_signal(signal.SIGCONT)
    made.kill()


def started(*command: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def consumed(broker: BrokerProcess, *options: str) -> subprocess.CompletedProcess[str]:
    command = [OTTLA, "consume", "t", "-b", broker.bootstrap, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def owned(ottla: Ottla, group: str) -> bool:
    """Whether a member of the group has a partition: one that is listed may still wait for it."""
    if not any(row["group"] == group for row in ottla.json("groups", "list")):
        return False
    return any(each["assignment"] for each in ottla.json("groups", "describe", group)["members"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("program", [STUBBORN, BUSY], ids=["stubborn", "busy"])
def test_a_command_that_does_not_end_is_ended(number: signal.Signals, program: str) -> None:
    process = started(sys.executable, "-c", program)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said.startswith(
        "Ending; Ctrl-C again ends it at once.\n" if number == signal.SIGINT else "Ending.\n"
    )
    assert said.endswith("half done\n") is (program == STUBBORN)


def test_a_second_ctrl_c_ends_it_at_once() -> None:
    process = started(sys.executable, "-c", STUBBORN)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "cancelled\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "without waiting" not in said
    assert said.endswith("half done\n")


@pytest.mark.parametrize("options", [["-g", "g"], ["-g", "s", "--share"]], ids=["group", "share"])
def test_one_ctrl_c_ends_a_consumer_of_a_frozen_broker(broker: BrokerProcess, options: list[str]) -> None:
    hour = HOUR if "--share" not in options else HOUR[:4]
    process = started(OTTLA, "consume", "t", *options, "-b", broker.bootstrap, *hour)
    ottla = Ottla(broker.bootstrap)
    wait_for(lambda: owned(ottla, options[1]), "the member's partition")
    broker.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


@pytest.mark.parametrize("at", ["a line", "end of input"])
def test_one_ctrl_c_ends_a_producer_of_a_frozen_broker(broker: BrokerProcess, at: str) -> None:
    """What was not delivered is said."""
    process = started(OTTLA, "produce", "t", "-b", broker.bootstrap, *PRODUCED)
    assert process.stdin is not None
    process.stdin.write("a\n")
    process.stdin.flush()
    wait_for(lambda: consumed(broker, "-e").stdout == "a\n", "the first record")
    broker.send_signal(signal.SIGSTOP)
    process.stdin.write("b\n")
    process.stdin.flush()
    if at == "end of input":
        process.stdin.close()
        process.stdin = None
    assert not readable(process.stderr, 1.0)  # it is sent, and waits
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "1 record not acknowledged, but may have arrived" in said
    assert "were sent" not in said


@pytest.mark.parametrize(("at", "number"), [("size", signal.SIGSTOP), ("end of input", signal.SIGKILL)])
def test_one_ctrl_c_amid_a_commit(broker: BrokerProcess, at: str, number: signal.Signals) -> None:
    """Nobody knows whether the transaction is committed, and nothing says so."""
    transactions = ("--transactional-id", "id", "--transaction-size", "2")
    process = started(OTTLA, "produce", "t", "-b", broker.bootstrap, *PRODUCED, *transactions)
    assert process.stdin is not None
    process.stdin.write("a\nb\nc\n")
    process.stdin.flush()
    wait_for(lambda: consumed(broker, "-e").stdout == "a\nb\nc\n", "the records")
    broker.send_signal(number)
    if at == "size":
        process.stdin.write("d\n")
        process.stdin.flush()
    else:
        process.stdin.close()
        process.stdin = None
    sleep(1)  # the commit is asked for, and no answer comes
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "1 transaction committed" in said
    count = "2 records count" if at == "size" else "1 record counts"
    assert (
        f"may have been committed: no answer says whether its {count}. `ottla transactions describe id`"
        in said
    )
    assert "what isn't committed is aborted 1m00s after its begin" in said
    assert "was not committed" not in said


def test_a_member_without_partitions_ends_at_the_end(broker: BrokerProcess) -> None:
    ottla = Ottla(broker.bootstrap)
    # The range assignor gives the only partition to a static member; of others, to the one with the lower random id.
    static = ("-X", "group_instance_id=first")
    other = started(OTTLA, "consume", "t", "-g", "g", "-b", broker.bootstrap, *static)
    try:
        wait_for(lambda: owned(ottla, "g"), "the other member's partition")
        result = consumed(broker, "-g", "g", "-e")
        assert result.returncode == 0
        assert result.stdout == ""
        assert "the other members of group g have all of its partitions" in result.stderr
    finally:
        other.send_signal(signal.SIGINT)
        other.communicate(timeout=60)


def test_a_consumer_without_records_says_at_a_terminal_that_it_waits(broker: BrokerProcess) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [OTTLA, "consume", "t", "-b", broker.bootstrap], stdin=child, stdout=child, stderr=child
    )
    os.close(child)
    said = b""
    while b"waiting for records; Ctrl-C ends" not in said:
        assert readable(parent, 60)
        said += os.read(parent, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    os.close(parent)


@pytest.mark.parametrize("imported", ["click", "ottla_cli.groups.command"])
def test_ctrl_c_while_the_command_is_loaded(imported: str) -> None:
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {imported!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['ottla', 'groups', 'list']\n"
        "from ottla_cli.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
