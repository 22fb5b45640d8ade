"""The Python and shell programs of the page on testing, run as their readers would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, marked, text

from ottla_broker.ephemeral import SETTINGS

PAGE = ROOT / "docs/testing.md"
ELSEWHERE = {"orders_test.go", "orders.test.js", "OrdersTest.java"}
"""Run by tests/interop."""


def run(command: list[str], program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / program).write_text(marked(PAGE, "file")[program])
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path}
    )


@pytest.mark.parametrize(
    ("command", "program", "reported"),
    [
        (["pytest", "-q", "-W", "error"], "test_orders.py", "3 passed"),
        (["unittest", "-v", "test_unittest"], "test_unittest.py", "Ran 1 test"),
    ],
)
def test_suites(command: list[str], program: str, reported: str, tmp_path: Path) -> None:
    done = run([sys.executable, "-m", *command], program, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert reported in done.stdout + done.stderr


def test_the_script(tmp_path: Path) -> None:
    done = run([sys.executable, "-W", "error", "script.py"], "script.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == marked(PAGE, "output")["script.py"]


def test_the_shell(tmp_path: Path) -> None:
    done = run(["bash", "-e", "ci.sh"], "ci.sh", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "orders" in done.stdout
    assert not (tmp_path / "broker.ready").exists()


def test_no_program_is_left_out() -> None:
    assert set(marked(PAGE, "file")) == {
        "test_orders.py",
        "test_unittest.py",
        "script.py",
        "ci.sh",
        *ELSEWHERE,
    }


def test_the_settings_are_those_in_force() -> None:
    for key, value in SETTINGS.items():
        assert f"- `{key}` is {value} " in text(PAGE)
