"""``format("ottla")`` where it isn't installed, but comes with the program: ``spark-submit --py-files ottla.zip``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .datasource import OttlaDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_OF_STREAMS = "streaming_job"
"""Where, below the folder of a program's files, Spark's processes for streams look for its archives."""


def register(spark: SparkSession, source: type[DataSource] = OttlaDataSource) -> None:
    """Have a session know a data source that Spark doesn't find by itself.

    Spark 4.3 looks for the archives of a program in another folder than it puts them, when it starts the process that
    plans a stream. So they are linked there.
    """
    from pyspark import SparkContext, SparkFiles

    spark.dataSource.register(source)
    if SparkContext._active_spark_context is None:
        return  # a session of Spark Connect: its server has the files
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
            continue  # linked when another source was registered
