"""Runs `ottla` commands as users do: piped, with --json, and at a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from tests.support.waiting import readable

from ottla_cli.ottla import main

OTTLA = str(Path(sys.executable).with_name("ottla"))

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Ottla:
    """The command line against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVER": bootstrap, "TERM": "xterm-256color"}

    def run(self, *arguments: str, stdin: str | None = None) -> Result:
        """Piped, in this process."""
        result = CliRunner(env=self.environment).invoke(main, arguments, input=stdin)
        assert result.output or "-o" in arguments, f"{arguments} ended with {result.exit_code} and no word"
        return result

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Standard output of a command that succeeds."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, (arguments, result.output)
        return result.stdout

    def rows(self, *arguments: str) -> list[list[str]]:
        """The cells of a piped table, without its titles."""
        return [re.split(r" {2,}", line.strip()) for line in self(*arguments).splitlines()[1:]]

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def fails(self, *arguments: str, code: int = 1, stdin: str | None = None) -> str:
        """Standard error of a command that fails with ``code``: one line, no traceback."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == code, (arguments, result.output, result.exception)
        assert isinstance(result.exception, SystemExit), result.exception
        return result.stderr

    def at_terminal(
        self, *arguments: str, width: int = 100, answer: str = "", colours: bool = False
    ) -> tuple[int, str]:
        """Exit code and output at a terminal of this width, in a separate process."""
        parent, child = pty.openpty()
        ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        process = subprocess.Popen(
            [OTTLA, *arguments], stdin=child, stdout=child, stderr=child, env=self.environment
        )
        os.close(child)
        if answer:
            os.write(parent, answer.encode())
        parts = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if not readable(parent, 0.1):
                continue
            try:
                data = os.read(parent, 65536)
            except OSError:  # the other side has gone
                break
            if not data:
                break
            parts.append(data)
        os.close(parent)
        text = b"".join(parts).decode().replace("\r\n", "\n")
        return process.wait(60), text if colours else _ESCAPE.sub("", text)
