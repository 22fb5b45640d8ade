"""Spark for the pipeline's tests: one shared session, and a cluster."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.java import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.support.spark import SparkCluster

# Small and quiet: no web page, no ports but loopback's, little memory, few tasks.
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": " ".join(QUICK),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

SUBMIT = {
    "PYSPARK_SUBMIT_ARGS": f"--driver-java-options '{' '.join(QUICK)}' pyspark-shell",
    "SPARK_LAUNCHER_OPTS": " ".join(QUICK),
}
"""The environment of a program whose Java is to begin soon."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two local cores, shared by all tests; a test leaves no query running and no setting changed."""
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        python = str(python_for_spark(folder))
        patch.setenv("PYSPARK_PYTHON", python)
        # Data sources that Spark finds by itself are run by the driver's Python, as Spark knows it.
        patch.setenv("PYSPARK_DRIVER_PYTHON", python)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_LAUNCHER_OPTS", " ".join(QUICK))
        builder = SparkSession.builder.master("local[2]").appName("tests")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        builder = builder.config("spark.local.dir", str(folder / "local"))
        session = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
        session.sparkContext.setLogLevel("FATAL")
        yield session
        _end(session)


def python_for_spark(folder: Path) -> Path:
    """This Python, for Spark's workers, with pyspark from where it is installed.

    Spark puts its own archive of pyspark first, which Python compiles again in each process: 1.2 s of 1.7.
    """
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    return script


def _end(session: SparkSession) -> None:
    """Stop the session, and its Java process with it: it would live until the end of all tests."""
    from pyspark import SparkContext

    for query in session.streams.active:
        query.stop()
    session.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    process.wait(30)
    SparkContext._gateway = None
    SparkContext._jvm = None


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> SparkCluster:
    """A cluster with two executors, each a process of its own, from the pyspark wheel."""
    from tests.support.spark import SparkCluster

    return SparkCluster(tmp_path_factory.mktemp("cluster"))
