"""Spark's failures under a job, as one line each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_CAUSE = re.compile(r"(?:Caused by: |: )?(?:[\w$]+\.)*\w+(?:Exception|Error): \S")
_LONGEST = 500


class Crashed(Exception):
    """Spark failed, for example because a worker was killed: the batch can be tried again."""


class JavaGone(Crashed):
    """Spark's Java process has ended: this session can't run anything again."""

    def __init__(self) -> None:
        super().__init__(
            "Spark's Java process has ended: it was killed, or had too little memory (spark.driver.memory); the same "
            "job goes on from what the table has"
        )


@contextmanager
def spark_errors() -> Iterator[None]:
    """Around calls of Spark: raises Crashed, or JavaGone, for what they raise."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException, OSError, EOFError) as error:
        if java_is_gone():
            raise JavaGone from error
        raise Crashed(f"Spark's job failed: {reason(str(error))}") from error


def java_is_gone() -> bool:
    """Whether the Java process of this process's session no longer answers."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    if jvm is None:
        return False
    try:
        jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return True
    return False


def reason(text: str) -> str:
    """The most telling line of Spark's: what became of a worker, the last cause, or the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.match(line)]
    workers = [line for line in causes if "Python worker" in line]
    found = (workers[:1] or causes[-1:] or lines[:1] or ["without giving a reason"])[0]
    found = found.removeprefix("Caused by: ").removeprefix(": ")
    return found if len(found) <= _LONGEST else found[:_LONGEST] + "…"
