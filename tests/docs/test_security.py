"""The commands and programs of docs/security.md, as they are written there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.ports import free_port
from tests.docs.pages import ROOT, marked
from tests.support.processes import BrokerProcess

_PAGE = ROOT / "docs" / "security.md"


class _FromFile(BrokerProcess):
    """``ottla broker server.properties``, in the page's folder."""

    @property
    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "ottla_broker", str(self.folder.parent / "server.properties")),
            *("--data-dir", str(self.folder)),
        ]


def test_from_nothing_to_tls_and_scram(tmp_path: Path) -> None:
    local, clients = free_port(), free_port()

    def here(text: str) -> str:
        # The test's own ports; files by their whole paths, because the broker starts in another folder.
        ports = text.replace("9091", str(local)).replace("9093", str(clients))
        return ports.replace("=broker.pem", f"={tmp_path}/broker.pem")

    run = marked(_PAGE, "run")["certificates"]
    subprocess.run(
        ["sh", "-e"], input=run.encode(), cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    files = marked(_PAGE, "file")
    assert set(files) - {"add_alice.py"} == {
        "server.properties",
        "add_user.py",
        "client.py",
        "bundled.py",
        "client.properties",
    }
    for name, body in files.items():
        (tmp_path / name).write_text(here(body))

    def program(name: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, timeout=120)

    with _FromFile(tmp_path / "data", port=local) as broker:
        hasty = (tmp_path / "client.py").read_text().replace("flush(30)", "flush(3)")
        (tmp_path / "hasty.py").write_text(hasty)
        assert program("hasty.py").returncode != 0  # there is no such user yet
        for name in ("add_user.py", "client.py", "bundled.py"):
            ended = program(name)
            assert ended.returncode == 0, ended.stderr.decode()

        def shell(name: str) -> str:
            return here(marked(_PAGE, "run")[name]).replace("ottla", f"{sys.executable} -m ottla_client", 1)

        listed = subprocess.run(
            ["sh", "-e"], input=shell("command").encode(), cwd=tmp_path, capture_output=True, timeout=60
        )
        assert (listed.returncode, b"greetings" in listed.stdout) == (0, True), listed.stderr.decode()
        checked = subprocess.run(
            ["sh", "-e"], input=shell("check").encode(), cwd=tmp_path, capture_output=True, timeout=120
        )
        assert (checked.returncode, checked.stderr) == (0, b""), checked.stdout.decode()
        assert broker.complaints() == []
