"""A real broker in its own process, on a free port, in a temporary folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from harness.ports import free_port
from tests.support import forking
from tests.support.forking import ForkedBroker
from tests.support.waiting import readable

READY = b"accepts clients"


class BrokerProcess:
    """``ottla broker``, which you can restart with the same folder and port.

    A process of its own, forked where that is possible (``forking``) unless it is to be as a user runs it.
    """

    forked = True
    other_names: ClassVar[Mapping[str, str]] = {}
    """Topic configs with other names than in Kafka 3.9."""

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None = None, port: int | None = None
    ) -> None:
        self.folder = folder
        self.port = port if port is not None else free_port()
        self.settings = dict(settings or {})
        self.log_file = folder.parent / f"{folder.name}.log"
        self.ready_line = ""
        self._read = 0
        self._process: subprocess.Popen[bytes] | ForkedBroker | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def arguments(self) -> list[str]:
        """The arguments of ``ottla broker``."""
        # A topic that appears after a minute would be in the way of tests that count topics.
        settings = {"ottla.lag.history.enable": "false", **self.settings}
        sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        where = [] if "log.dirs" in self.settings else ["--data-dir", str(self.folder)]
        if "listeners" not in self.settings:
            where += ["--listen", self.bootstrap]
        return [*where, *sets]

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "ottla_broker", *self.arguments]

    def start(self, timeout: float = 60.0) -> BrokerProcess:
        """Start the broker, and wait until it reports that it accepts clients."""
        self.spawn()
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if readable(self._process.stdout, 0.1):
                line = self._process.stdout.readline()
                if READY in line:
                    self.ready_line = line.decode()
                    return self
                if not line:
                    break
        self.kill()
        raise RuntimeError(f"the broker did not start:\n{self.log()[-4000:]}")

    def spawn(self) -> None:
        """Start the broker without waiting."""
        with self.log_file.open("ab") as errors:
            if self.forked and type(self).command is BrokerProcess.command:
                self._process = forking.start(self.arguments, errors.fileno())
                if self._process is not None:
                    return
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONDEVMODE": ""},
            )

    def stop(self, timeout: float = 60.0, sign: signal.Signals = signal.SIGTERM) -> int:
        """Send SIGTERM, and return the exit code."""
        self.send_signal(sign)
        return self.wait(timeout)

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for the broker's end, and return the exit code. The rest of stdout goes to :attr:`ready_line`."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout)
            assert self._process.stdout is not None
            self.ready_line += self._process.stdout.read().decode()
            return code
        finally:
            self._release()

    def send_signal(self, sign: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(sign)

    def kill(self) -> None:
        """Send SIGKILL, if the broker still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._release()

    def _release(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def log(self) -> str:
        """Return its log."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def events(self) -> list[dict[str, object]]:
        """Return its log as dicts, without a line that is still being written. Other lines that aren't JSON fail."""
        return [json.loads(line) for line in self.log().splitlines(keepends=True) if line.endswith("\n")]

    def complaints(self) -> list[str]:
        """Return log lines since the last call that reveal a defect: a failed request, a traceback."""
        if not self.log_file.exists():
            return []
        with self.log_file.open("rb") as file:
            file.seek(self._read)
            text = file.read()
            self._read = file.tell()
        lines = text.decode(errors="replace").splitlines()
        return [
            line for line in lines if "request failed" in line or "Traceback" in line or '"exception"' in line
        ]

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
