"""``format("ottla")`` where Spark doesn't find it by itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .datasource import OttlaDataSource

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_OF_STREAMS = "streaming_job"
"""Where, below the folder of a program's files, Spark's processes for streams look for its archives."""


def register(spark: SparkSession) -> None:
    """Make ``format("ottla")`` known to a session.

    Spark finds it alone if the ``python3`` on the PATH, or ``PYSPARK_PYTHON``, has Ottla installed. This also covers a
    program run as ``.venv/bin/python job.py``, and packages that come with ``spark-submit --py-files``.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        use_this_python(context)
        _link_archives()
    # Without a context it is a session of Spark Connect, whose server has the files.
    spark.dataSource.register(OttlaDataSource)


def use_this_python(context: SparkContext) -> None:
    """Run Python workers on this machine with this interpreter, unless the user has named one."""
    if not os.environ.get("PYSPARK_PYTHON") and str(context.master).startswith("local"):
        context.pythonExec = sys.executable


def _link_archives() -> None:
    """Spark 4.3 puts a program's archives in one folder, and its stream planning process looks in another."""
    from pyspark import SparkFiles

    folder = Path(SparkFiles.getRootDirectory())
    if not folder.is_dir():
        return
    archives = [file for file in folder.iterdir() if file.suffix in (".zip", ".egg", ".whl", ".jar", ".py")]
    if archives:
        (folder / _OF_STREAMS).mkdir(exist_ok=True)
    for file in archives:
        try:
            os.symlink(file, folder / _OF_STREAMS / file.name)
        except FileExistsError:
            continue  # Another session of this program has registered.
