"""The commands of the page on access control print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks, marked
from tests.support.processes import BrokerProcess

from ottla_broker.config.properties import read_properties

PAGE = ROOT / "docs/acls.md"


def test_the_session(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(marked(PAGE, "file")["server.properties"])
    broker = BrokerProcess(tmp_path / "data", read_properties(file)).start()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OTTLA_BOOTSTRAP_SERVER": broker.bootstrap}
    shown = "".join(blocks(PAGE, "console"))
    seen = ""
    try:
        for line in re.findall(r"^\$ (.*)$", shown, re.MULTILINE):
            done = subprocess.run(
                ["bash", "-c", line],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                env=environment,
            )
            seen += f"$ {line}\n{done.stdout}"
    finally:
        broker.kill()
    assert seen == shown
