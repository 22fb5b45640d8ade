"""How a query ended: what the user is told in one line, and after what it is worth another try."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla_pipeline.landing.errors import Collision, LandingError
from ottla_pipeline.landing.evolution import merged
from ottla_pipeline.landing.settings import Landing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What the source says in Spark's Python processes reaches us inside of Spark's own words.
_OWN = re.compile(r"(?:SourceError|OptionError|LossError|ReadError|LandingError|SchemaRefused): (.+)")
_TWO = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "CONCURRENT_QUERY",
    "ConcurrentModificationException",
    "another query with same id is already active",
)
_CAUSE = re.compile(r"(?:Caused by: |: )?(?:[\w$]+\.)*\w+(?:Exception|Error): \S")
_LONGEST = 500


class Grown(Exception):
    """Records have fields that the table has no columns for: these."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(", ".join(schema.names))
        self.schema = schema

    @classmethod
    def of(cls, found: Sequence[pa.Schema]) -> Grown:
        """From what several tasks found."""
        schema = found[0]
        for one in found[1:]:
            schema = merged(schema, one)
        return cls(schema)


class Crashed(Exception):
    """The query has ended with an error that isn't the job's own: a worker was killed, say."""


class JavaGone(Crashed):
    """Spark's Java process has ended: no query can be started again in this session."""

    def __init__(self) -> None:
        super().__init__(
            "Spark's Java process has ended: it was killed, or had too little memory (spark.driver.memory); the same "
            "job goes on from what the table has"
        )


def explained(error: Exception, failed: Sequence[BaseException], landing: Landing) -> Exception:
    """What to raise for the error that ended a query; ``failed`` has what our own code raised in it."""
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    # A callback's own connection may have been refused as well.
    if (
        any(isinstance(one, (Py4JNetworkError, ConnectionError)) for one in (error, *failed))
        and java_is_gone()
    ):
        return JavaGone()
    for own in failed:
        # What Spark raised into our own code is told by how the query ended.
        if isinstance(own, Exception) and not isinstance(own, (PySparkException, Py4JError)):
            return own
    text = str(error)
    if any(sign in text for sign in _TWO):
        return Collision(
            f"two jobs run on the checkpoint {landing.checkpoint}: stop one of them, and start the other again"
        )
    found = _OWN.findall(text)
    if found:
        return LandingError(found[-1].strip())
    return Crashed(f"Spark's query ended: {_reason(text)}")


def java_is_gone() -> bool:
    """Whether nobody answers where this process had a session's Java process."""
    from py4j.protocol import Py4JNetworkError
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    if jvm is None:
        return False
    try:
        jvm.java.lang.System.nanoTime()
    except (Py4JNetworkError, ConnectionError):
        return True
    return False


def session() -> SparkSession:
    """The session that there is, or a new one.

    :raises LandingError: there is no Java, or Spark doesn't start.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and (Path(home) / "bin" / "java").exists())):
        raise LandingError("Spark needs Java 17 or later: install one, or set JAVA_HOME to it")
    # Workers on this machine have to be of this very Python, which need not be the first on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return SparkSession.builder.appName("ottla landing").getOrCreate()
    except Exception as error:
        raise LandingError(f"Spark does not start: {_reason(str(error))}") from error


def _reason(text: str) -> str:
    """The line of Spark's words that says most: what became of a worker, the last cause, or the first line."""
    text = text.partition("terminated with exception: ")[2] or text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.match(line)]
    workers = [line for line in causes if "Python worker" in line]
    found = (workers[:1] or causes[-1:] or lines[:1] or ["for no reason that it gave"])[0]
    found = found.removeprefix("Caused by: ").removeprefix(": ")
    return found if len(found) <= _LONGEST else found[:_LONGEST] + "…"
