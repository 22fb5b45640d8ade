"""The command ``ottla`` as a user runs it, in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PATIENCE = 60.0  # seconds, far more than any of the commands takes


@dataclass(frozen=True)
class Outcome:
    """A command's exit code and output, which never contains a traceback."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[bytes]:
        return self.out.splitlines()


def spawn(
    bootstrap: str, *args: str, stdin: int = subprocess.PIPE, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command that turns Python's warnings into errors."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "ottla_client", *args],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OTTLA_BOOTSTRAP_SERVER": bootstrap, **(env or {})},
    )


def finish(process: subprocess.Popen[bytes], data: bytes | None = None) -> Outcome:
    """Wait for a command's end."""
    try:
        out, err = process.communicate(data, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"it did not end: {err.decode()}") from None
    text = err.decode()
    assert "Traceback" not in text, text
    return Outcome(process.returncode, out, text)


def ottla(bootstrap: str, *args: str, data: bytes = b"", env: Mapping[str, str] | None = None) -> Outcome:
    """Run a command to its end."""
    return finish(spawn(bootstrap, *args, env=env), data)


class Shell:
    """``ottla`` for one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *args: str | Path, data: bytes = b"") -> Outcome:
        return ottla(self.bootstrap, *map(str, args), data=data)

    def records(self, topic: str) -> list[dict[str, Any]]:
        """Return all records of a topic, ordered by partition and offset."""
        found = [json.loads(line) for line in self("consume", topic, "-e", "--json").lines]
        return sorted(found, key=lambda record: (record["partition"], record["offset"]))

    def values(self, topic: str) -> list[str | None]:
        return [record["value"] for record in self.records(topic)]
