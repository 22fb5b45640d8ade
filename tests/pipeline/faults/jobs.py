"""Spark programs as processes that tests kill: their output, and what runs under them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.pipeline.conftest import SUBMIT, python_for_spark

ROOT = Path(__file__).parents[3]
HANGS = 900
"""Seconds after which a job is taken to hang."""


@dataclass
class Driver:
    """A job in a process of its own, and its output."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def wait_for(self, word: str, times: int, timeout: float = HANGS) -> bool:
        """Until it has said so, so often; False if it ends first."""
        deadline = time.monotonic() + timeout
        while sum(line.startswith(word) for line in self.lines) < times:
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < deadline, f"the job has not said {word!r} {times} times: {self.lines}"
            time.sleep(0.01)
        return True


@contextmanager
def driver(module: str, given: dict[str, Any], log: Path) -> Iterator[Driver]:
    """``python -m module JSON``; what is left of it is killed at the end."""
    python = python_for_spark(log.parent)
    env = {**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    env |= SUBMIT
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=env,
        )
    made = Driver(process)
    reader = threading.Thread(target=made.read)
    reader.start()
    family: list[psutil.Process] = []
    try:
        yield made
        family = under(process.pid)
    finally:
        family = family or under(process.pid)
        process.kill()
        kill(family)
        process.wait()
        reader.join()
        assert process.stdout is not None
        process.stdout.close()
        psutil.wait_procs(family, timeout=60)


def under(pid: int) -> list[psutil.Process]:
    """The Java process and the workers under it; they are no children any more once the driver is gone."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def name(process: psutil.Process) -> str:
    """Empty where it has ended meanwhile."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def kill(processes: list[psutil.Process]) -> None:
    """Those that are still there."""
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.kill()


def committing(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those in which Spark's streaming sinks commit a batch: forked by a server with the same command line."""
    found = []
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            if any("python_streaming_sink_runner" in word for word in one.cmdline()):
                found.append(one)
    servers = {one.pid for one in found}
    forked = []
    for one in found:
        with suppress(psutil.NoSuchProcess):
            if one.ppid() in servers:
                forked.append(one)
    return forked or found
