"""Spark 4.0 with the runtimes of Delta Lake and Apache Iceberg, as other programs of a lakehouse have it.

The Spark that Ottla's own tests use is newer than these runtimes. So this one lives in an environment of its own below
``.cache``, and runs in a process that takes SQL and answers with rows.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.java import QUICK, Unavailable, find_java
from harness.maven import CACHE, jars

SPARK = "4.0.1"
_JARS = (
    "io.delta:delta-spark_2.13:4.0.0",
    "io.delta:delta-storage:4.0.0",
    "org.antlr:antlr4-runtime:4.13.1",
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
    "org.xerial:sqlite-jdbc:3.46.1.3",
)
_PROGRAM = Path(__file__).with_name("programs") / "lakehouse_sql.py"


class SQLError(Exception):
    """Spark refused a statement; the text is its error's."""


def python() -> str:
    """The Python of an environment with Spark 4.0, made at the first call; ``OTTLA_SPARK_40`` names another one.

    Raises Unavailable if pip can't install it.
    """
    given = os.environ.get("OTTLA_SPARK_40")
    if given:
        return given
    CACHE.mkdir(exist_ok=True)
    folder = CACHE / "spark-4.0"
    with open(CACHE / ".spark-4.0.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = folder / "bin" / "python"
        if not (folder / ".complete").exists():
            for command in (
                [sys.executable, "-m", "venv", "--clear", str(folder)],
                [str(made), "-m", "pip", "install", "-q", f"pyspark=={SPARK}"],
            ):
                done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
                if done.returncode:
                    reason = (done.stderr.strip().splitlines() or ["without a reason"])[-1]
                    raise Unavailable(f"Spark {SPARK} could not be installed: {reason}")
            (folder / ".complete").touch()
    return str(made)


class LakehouseSpark:
    """A session that sees ``folder``: Iceberg's catalogue ``ottla`` (SQLite beside the tables), and Delta by paths.

    Raises Unavailable if Java, Maven or Spark is missing.
    """

    def __init__(self, folder: Path) -> None:
        find_java()
        libs = ",".join(str(jar) for jar in sorted(jars("lakehouse", list(_JARS), alone=True).glob("*.jar")))
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": ""}
        command = [python(), str(_PROGRAM), str(folder), libs, " ".join(QUICK)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()

    def sql(self, query: str) -> list[list[Any]]:
        """The rows of a statement, values as JSON has them. Raises SQLError."""
        return self._ask(query)

    def delete_equal(
        self,
        table: str,
        columns: Sequence[str],
        keys: Sequence[dict[str, Any]],
        rows: Sequence[dict[str, Any]] = (),
        *,
        spec_id: int | None = None,
        partition: Mapping[str, Any] | None = None,
    ) -> None:
        """Delete all rows so far that have one of these keys, by an equality delete, and add rows in the same commit.

        The delete is of the table's spec, or another of its specs, and of the partition of rows with these values.
        """
        request = {"table": table, "columns": columns, "keys": keys, "rows": rows}
        self._ask({**request, "spec_id": spec_id, "partition": partition or {}})

    def _ask(self, request: str | dict[str, Any]) -> list[list[Any]]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[list[Any]]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(f"Spark {SPARK} ended with code {self._process.wait(60)}")
        answer = json.loads(line)
        if "error" in answer:
            raise SQLError(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows
