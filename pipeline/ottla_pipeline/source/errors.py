"""Errors of the data source: one line each, with what is wrong, where, and what to do.

SourceError
  OptionError     an option is unknown, invalid, or conflicts with another

Planning also raises DataLoss, which is an error of ``ottla_pipeline.reading``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class SourceError(Exception):
    """Base of the data source's own errors."""


class OptionError(SourceError, ValueError):
    """An option is unknown, has an invalid value, or conflicts with another."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Show our errors to the user as one line, also from a Python process that Spark runs. For ``with``, or a method.

    Spark shows an exception with its traceback unless the process sets ``SPARK_HIDE_TRACEBACK``, and then ends the
    process. Any exception but our own is a defect, so it keeps its traceback. ClientError becomes SourceError,
    with options by the names that Spark's users give them.
    """
    # This module's own import has to stay light.
    from ottla_client.errors import ClientError
    from ottla_pipeline.reading.errors import ReadError

    try:
        yield
    except (SourceError, ClientError, ReadError) as error:
        if _in_sparks_process():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        if isinstance(error, ClientError):
            from ottla_client.lowlevel import in_kafka_names

            raise SourceError(in_kafka_names(str(error))) from error
        raise


def _in_sparks_process() -> bool:
    """Whether Spark started this process to run Python, rather than the user."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
