"""What the data source raises. Each is one line that says what, where, and what to do.

SourceError
  OptionError     an option that is unknown, wrong, or doesn't go with another
  LossError       records that were to be read are no longer in the log
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class SourceError(Exception):
    """The base of everything that the data source raises on its own account."""


class OptionError(SourceError, ValueError):
    """An option that is unknown, has a value that can't be right, or doesn't go with another one."""


class LossError(SourceError):
    """Records that were to be read are gone, and ``failOnDataLoss`` is true; the text says which and why."""


@contextmanager
def speaking() -> Iterator[None]:
    """Whatever is raised within reaches the user as one line, from a process of Spark's own.

    Spark sends the text of an exception with its traceback to the user, unless the process says not to, and ends the
    process afterwards. Our errors say all in their own line, so they ask for that line alone; any other exception is a
    defect, and keeps its traceback.
    """
    # Heavier than this module may be at import.
    from ottla_client.errors import ClientError
    from ottla_pipeline.reading.errors import ReadError

    try:
        yield
    except (SourceError, ClientError, ReadError) as error:
        if _in_sparks_process():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        if isinstance(error, ClientError):
            raise SourceError(str(error)) from error
        raise


def spoken(method: Callable[P, T]) -> Callable[P, T]:
    """A method that Spark calls, ``speaking``."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with speaking():
            return method(*args, **kwargs)

    return call


def _in_sparks_process() -> bool:
    """Whether this process was started by Spark to run Python for it, rather than by the user."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
