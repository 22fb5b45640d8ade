"""The Spark session that a job uses when it is given none."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.failures import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session() -> SparkSession:
    """The active session, or a new one. Raises LandingError if Java is missing, or Spark doesn't start."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and (Path(home) / "bin" / "java").exists())):
        raise LandingError("Spark needs Java 17 or later: install one, or set JAVA_HOME to it")
    # Spark's workers run the first python3 on the PATH otherwise, which may lack Ottla.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return SparkSession.builder.appName("ottla landing").getOrCreate()
    except Exception as error:
        raise LandingError(f"Spark does not start: {reason(str(error))}") from error
