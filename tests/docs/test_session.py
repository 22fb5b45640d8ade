"""The programs of the pages do what the pages show, run in the order in which a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks, marked
from tests.support.processes import BrokerProcess

README = ROOT / "README.md"
START = ROOT / "docs/getting-started.md"
OPERATIONS = ROOT / "docs/operations.md"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    # The pages' broker waits three seconds for further members; these tests need not.
    process = BrokerProcess(tmp_path / "ottla-data", {"group.initial.rebalance.delay.ms": 0}).start()
    yield process
    process.kill()


def run(page: Path, program: str, broker: BrokerProcess) -> str:
    source = marked(page, "file")[program].replace("127.0.0.1:9092", broker.bootstrap)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_pages_programs(broker: BrokerProcess) -> None:
    session = [
        (START, "topic.py"),
        (START, "produce.py"),
        (START, "consume.py"),
        (START, "historians.py"),
        (OPERATIONS, "lag.py"),
    ]
    for page, program in session:
        assert run(page, program, broker) == marked(page, "output")[program], program
    broker.kill()
    broker.start()
    assert run(START, "consume.py", broker) == "", "the group's offset outlives a crash"


def test_no_program_is_left_out() -> None:
    assert set(marked(README, "file")) == {"test_orders.py"}
    assert set(marked(START, "file")) == {
        "topic.py",
        "produce.py",
        "consume.py",
        "historians.py",
        "test_orders.py",
    }
    assert set(marked(OPERATIONS, "file")) == {"lag.py"}


@pytest.mark.parametrize("page", [README, START], ids=["README", "Getting started"])
def test_the_first_session_at_the_terminal(page: Path, broker: BrokerProcess, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OTTLA_BOOTSTRAP_SERVER": broker.bootstrap}
    shown = "".join(blocks(page, "console"))
    seen = ""
    for line in re.findall(r"^\$ (.*)$", shown, re.MULTILINE):
        done = subprocess.run(
            ["bash", "-c", line],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env=environment,
        )
        seen += f"$ {line}\n{done.stdout}"
    assert without_times(seen) == without_times(shown)


def without_times(text: str) -> str:
    """What is the same in every run: seconds and rates are left out, and the blanks that align them."""
    return re.sub(r" +", " ", re.sub(r"\d+(\.\d+)?(m?s| s)\b|[\d.,]+ records/s", "…", text))


@pytest.mark.parametrize("page", [README, START], ids=["README", "Getting started"])
def test_the_fixture_for_pytest(page: Path, tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(marked(page, "file")["test_orders.py"])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        "--rootdir=.",
    ]
    done = subprocess.run([*command, "."], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
