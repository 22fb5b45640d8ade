"""The command ``ottla`` as a user runs it, on pipes.

It runs in a process of its own, or in this one, which takes a tenth of the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ottla_cli.ottla import main

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
        [sys.executable, "-W", "error", "-m", "ottla_cli", *args],
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
    """Run a command to its end, in this process; ``spawn`` is for one that is ended, or whose ends are no pipes."""
    found: list[bytes] = [b"", b""]

    def read(number: int, fd: int) -> None:
        with open(fd, "rb") as file:
            found[number] = file.read()

    def write(fd: int) -> None:
        with suppress(BrokenPipeError), open(fd, "wb") as file:
            file.write(data)

    pipes = [os.pipe() for _ in range(3)]
    threads = [threading.Thread(target=write, args=(pipes[0][1],))]
    threads += [threading.Thread(target=read, args=(number, pipes[number + 1][0])) for number in (0, 1)]
    for thread in threads:
        thread.start()
    modes = ("r", "w", "w")
    streams = [
        os.fdopen(fd, mode) for fd, mode in zip((pipes[0][0], pipes[1][1], pipes[2][1]), modes, strict=True)
    ]
    before = (sys.stdin, sys.stdout, sys.stderr)
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        with patch.dict(os.environ, {"OTTLA_BOOTSTRAP_SERVER": bootstrap, **(env or {})}):
            main(args, prog_name="ottla")
        raise AssertionError("a command ends with an exit code")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        for stream in streams:
            stream.close()
        for thread in threads:
            thread.join(_PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "the command has left a stream open"
    return Outcome(code, found[0], found[1].decode())


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
