"""Spark with executors that are processes of their own, and programs that run on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pyspark
from harness.java import QUICK

EXECUTORS = 2
_MEMORY = 512  # MiB of each executor
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


class SparkCluster:
    """A standalone cluster: a master and two workers, whose executors have one core each.

    Each executor is a process of its own. Master and workers run in the driver (``local-cluster``): as processes they
    would start three more JVMs.
    """

    url = f"local-cluster[{EXECUTORS},1,{_MEMORY}]"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The workers put their executors' folders below Spark's home, which isn't to be where it is installed.
        self._home = folder / "spark"
        self._home.mkdir()
        for part in Path(pyspark.__path__[0]).iterdir():
            if part.name != "work":
                (self._home / part.name).symlink_to(part)

    def submit(
        self,
        program: Path,
        *arguments: str,
        python: str = sys.executable,
        options: Sequence[str] = (),
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with ``spark-submit``, with this Python for driver and executors."""
        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.driver.host": "127.0.0.1",
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.memory": f"{_MEMORY}m",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        command = [str(self._home / "bin" / "spark-submit"), "--master", self.url]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        environment = {**self._environment(), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        return subprocess.run(
            [*command, *options, str(program), *arguments],
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
            "SPARK_HOME": str(self._home),
            "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
