"""A Spark standalone cluster on this machine, and programs that run on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pyspark
from harness.java import QUICK
from harness.ports import free_port

HOME = Path(pyspark.__file__).parent
WORKERS = 2
JAVA_OPTIONS = " ".join(QUICK)

T = TypeVar("T")


def patiently(action: Callable[[], T], tries: int = 5) -> T:
    """Retry a query when Spark gave up on one of its Python processes after 10 s, which happens on a busy machine.

    A query that Spark couldn't start has done nothing.
    """
    while True:
        tries -= 1
        try:
            return action()
        except Exception as error:
            if not tries or "Python worker failed to connect back" not in str(error):
                raise


class StandaloneCluster:
    """A master and two workers with one core each. ``url`` is the master for sessions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.page = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> StandaloneCluster:
        try:
            address = ("--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.page))
            self._start("master", "org.apache.spark.deploy.master.Master", *address)
            self._wait(0)
            for number in range(WORKERS):
                ports = ("--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "700m")
                self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *ports, self.url)
            self._wait(WORKERS)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes. A second call does nothing."""
        while self._processes:
            process = self._processes.pop()
            # The executors are children of the workers, so kill the whole group at once.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def submit(
        self,
        program: Path,
        *arguments: str,
        python: str = sys.executable,
        options: Sequence[str] = (),
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with ``spark-submit``, with this Python for driver and executors."""
        command = [
            str(HOME / "bin" / "spark-submit"),
            *("--master", self.url),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.sql.shuffle.partitions=2"),
            *("--conf", "spark.executor.memory=512m", "--conf", "spark.log.level=ERROR"),
            *(
                "--conf",
                f"spark.driver.extraJavaOptions={JAVA_OPTIONS}",
                "--conf",
                f"spark.executor.extraJavaOptions={JAVA_OPTIONS}",
            ),
            *options,
            str(program),
            *arguments,
        ]
        environment = {**self._environment(), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        return subprocess.run(
            command,
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def _environment(self) -> Mapping[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPARK_", "PYTHON", "PYSPARK_"))
        }
        return {
            **kept,
            "SPARK_HOME": str(HOME),
            # Small and quick to start, with no other ports.
            "SPARK_DAEMON_JAVA_OPTS": f"{JAVA_OPTIONS} -Dspark.master.rest.enabled=false",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self.folder / "work"),
        }

    def _start(self, name: str, main: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as output:
            command = [str(HOME / "bin" / "spark-class"), main, *arguments]
            self._processes.append(
                subprocess.Popen(
                    command,
                    env=self._environment(),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _wait(self, workers: int) -> None:
        """Wait until the master responds and has this many workers."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=5) as answer:
                    if json.load(answer)["aliveworkers"] >= workers:
                        return
            except OSError:
                time.sleep(0.1)
            time.sleep(0.1)
        logs = "\n".join(each.read_text(errors="replace")[-1000:] for each in self.folder.glob("*.log"))
        raise RuntimeError(f"the cluster did not start:\n{logs}")
