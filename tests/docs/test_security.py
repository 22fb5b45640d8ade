"""The commands and programs of docs/security.md, as they are written there.

tests/interop/test_secure_cluster.py runs those of the secured cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness.ports import free_port
from tests.docs.pages import ROOT, marked
from tests.support.processes import BrokerProcess

_PAGE = ROOT / "docs" / "security.md"
_FILES = marked(_PAGE, "file")
_RUN = marked(_PAGE, "run")


class _FromFile(BrokerProcess):
    """``ottla broker server.properties``, in the page's folder."""

    @property
    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "ottla_broker", str(self.folder.parent / "server.properties")),
            *("--data-dir", str(self.folder)),
        ]


class _Reader:
    """Someone who follows the page in a folder of their own, with free ports instead of the page's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.local, self._clients = free_port(), free_port()

    def here(self, text: str) -> str:
        ports = text.replace("9091", str(self.local)).replace("9093", str(self._clients))
        # By its whole path, because the broker starts in another folder.
        return ports.replace("=broker.pem", f"={self.folder}/broker.pem")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(self.here(text))

    def program(self, name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, name]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["sh", "-e"],
            input=self.here(script),
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def output(self, script: str) -> str:
        """Run a script that succeeds."""
        done = self.shell(script)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def test_nothing_on_the_page_is_left_out() -> None:
    assert set(_FILES) == {
        "add_alice.py",
        "server.properties",
        "add_user.py",
        "client.py",
        "bundled.py",
        "client.properties",
        "with-tokens.properties",
    }
    assert set(_RUN) == {
        "cluster",
        "certificates",
        "password",
        "command",
        "create",
        "take",
        "login",
        "tokens",
        "renew",
        "check",
    }


def test_from_nothing_to_tls_and_scram(tmp_path: Path) -> None:
    reader = _Reader(tmp_path)
    reader.output(_RUN["certificates"])
    for name, body in _FILES.items():
        reader.write(name, body)
    with _FromFile(tmp_path / "data", port=reader.local) as broker:
        reader.write("hasty.py", _FILES["client.py"].replace("flush(30)", "flush(3)"))
        assert reader.program("hasty.py").returncode != 0  # there is no such user yet
        reader.output(_RUN["password"])
        for name in ("client.py", "add_user.py", "bundled.py"):
            ended = reader.program(name)
            assert ended.returncode == 0, ended.stderr
        assert "greetings" in reader.output(_RUN["command"])
        assert "broker.pem" in reader.output(_RUN["renew"])
        checked = reader.shell(_RUN["check"])
        assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
        assert broker.complaints() == []
    reader.write("server.properties", _FILES["with-tokens.properties"])
    with _FromFile(tmp_path / "data", port=reader.local) as broker:
        _use_a_token(reader)
        assert broker.complaints() == []


def _use_a_token(reader: _Reader) -> None:
    # In one shell, whose variables the next block needs.
    created = reader.output(_RUN["create"] + _RUN["take"] + _RUN["login"])
    assert "greetings" in created
    assert (reader.folder / "token.json").stat().st_mode & 0o077 == 0
    token = reader.output(_RUN["take"] + 'echo "$ID"').strip()
    assert token in reader.output(_RUN["take"] + _RUN["tokens"])
    refused = reader.shell(_RUN["take"] + _RUN["login"])
    assert (refused.returncode, "failed" in refused.stderr) == (1, True), refused.stderr
