"""Small programs in Node and Go against the unmodified client libraries kafkajs, franz-go and sarama.

They are built in the cache folder with the language's own package tool; what each checks stands at its top.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from bench.brokers import Broker
from bench.maven import CACHE
from tests.interop.support import PROGRAMS, needed, run


def _built(name: str, sources: Path, made: str, command: list[str]) -> Path:
    """The cache folder with the sources and what the command has ``made`` of them; skips where it cannot fetch."""
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(sources, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        if (folder / made).exists():
            pytest.fail(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        pytest.skip(f"{name} is not to be had: {' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")
    return folder


def test_kafkajs(broker: Broker) -> None:
    node, npm = needed("node"), needed("npm")
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline"]
    folder = _built("node", PROGRAMS / "node", "node_modules", command)
    output = run([node, "round_trip.js", broker.address, "kafkajs-round-trip"], cwd=folder)
    assert output.splitlines()[-1] == "ok"


@pytest.mark.parametrize("client", ["kgo", "sarama"])
def test_go_client(broker: Broker, client: str) -> None:
    go = needed("go")
    folder = _built("go", PROGRAMS / "go", "bin", [go, "build", "-o", "bin/", "./..."])
    output = run([str(folder / "bin" / client), broker.address, f"{client}-round-trip"])
    assert output.splitlines()[-1] == "ok"
