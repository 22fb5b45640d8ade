"""The Spark session of a command, with Spark's output in a file.

Spark, its Java process and its Python workers write to standard error, which would break a progress bar. So their
output goes to a file. If something fails, the command names the file; otherwise it removes it.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla_cli import Console, one_line, option_group
from ottla_client.lowlevel import did_you_mean

from .types import pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No web page, no port for it, and times in UTC as in the tables.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
_MASTERS = ("local", "local[*]", "local[N]", "spark://HOST:PORT", "yarn", "k8s://https://HOST:PORT")
_LONGEST_TAIL = 64 << 10
_SPARKS_OWN = ("bin", "conf", "jars")
"""The folders that Spark needs below its home, without its archives for Python."""


def _master(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value in ("local", "yarn") or value.startswith(("local[", "local-cluster[", "spark://", "k8s://")):
        return value
    hint = did_you_mean(value, _MASTERS) or f"; there are {', '.join(_MASTERS)}"
    raise click.BadParameter(f"{value!r} is no master{hint}")


def _conf(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Parse KEY=VALUE. Spark silently ignores an unknown name, so at least its prefix is checked."""
    given = pairs(context, parameter, values)
    for key in given:
        if not key.startswith("spark."):
            raise click.BadParameter(f"{key!r} is no setting of Spark: their names begin with spark.")
    return given


spark_options = option_group(
    click.option(
        "--master",
        envvar="OTTLA_SPARK_MASTER",
        default="local[*]",
        show_default=True,
        show_envvar=True,
        metavar="URL",
        callback=_master,
        help="Run Spark here with a thread per core (local[*]) or a number of threads (local[2]), or on a cluster "
        "(spark://HOST:PORT, yarn, k8s://…).",
    ),
    click.option(
        "--conf",
        "conf",
        multiple=True,
        callback=_conf,
        metavar="KEY=VALUE",
        help="Set a property of Spark, such as spark.driver.memory=4g. May be repeated.",
    ),
)
"""Gives a command ``--master`` and ``--conf``, as ``spark-submit`` has them."""


def require_java() -> None:
    """Raise click.ClickException if Spark would find no Java."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin/java"
        if not os.access(java, os.X_OK):
            raise click.ClickException(
                f"JAVA_HOME is {home}, which has no Java ({java}): set it to a Java 17 or later, or unset it"
            )
    elif shutil.which("java") is None:
        raise click.ClickException("Spark needs Java 17 or later: install one, or set JAVA_HOME to it")


class SparkLog:
    """The file that takes what Spark and its processes write to standard error."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ottla-spark-"))
        self.file = self.folder / "spark.log"

    def last_error(self) -> str:
        """The last line that looks like a reason; empty without one."""
        if not self.file.exists():
            return ""
        with self.file.open("rb") as file:
            file.seek(max(self.file.stat().st_size - _LONGEST_TAIL, 0))
            lines = file.read().decode(errors="replace").splitlines()
        for line in reversed(lines):
            # Frames of a stack name classes such as Errors.java, but no reason.
            if line.startswith("\tat "):
                continue
            if "Error" in line or "Exception" in line or "error:" in line.lower():
                return " ".join(line.removeprefix("Caused by: ").split())
        return ""

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def session(console: Console, master: str, conf: Mapping[str, str], name: str) -> Iterator[SparkSession]:
    """A session for one command, ended with it. Raises click.ClickException where Spark doesn't start."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    from ..landing.errors import LandingError
    from ..landing.failures import Crashed

    require_java()
    # The workers under Spark have to be of this very Python, which need not be the first on the PATH.
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log = SparkLog()
    try:
        with console.progress("starting Spark"), installed_spark(log.folder, master):
            spark = _start(master, conf, name, log.file)
    except BaseException as error:
        _end_java()
        if not isinstance(error, Exception):
            log.remove()
            raise
        reason = log.last_error() or one_line(error)
        raise click.ClickException(
            f"Spark did not start: {reason}; all of what it said is in {log.file}"
        ) from None
    keep = False
    try:
        yield spark
    except LandingError as error:
        # Of what is wrong with a job itself Spark's log knows nothing more.
        if not isinstance(error.__cause__, Crashed):
            raise
        keep = True
        raise LandingError(f"{error} (Spark's log: {log.file})") from error.__cause__
    finally:
        # Java may have gone; what the job says of that is more than what this would.
        with suppress(OSError, Py4JError):
            spark.stop()
        _end_java()
        if not keep:
            log.remove()


@contextmanager
def installed_spark(folder: Path, master: str) -> Iterator[None]:
    """Start Spark from the installed pyspark, without the archives that come with it.

    Spark puts those archives first on the path of each Python that it starts, which then compiles pyspark again, in
    more than a second. Without them it uses the installed pyspark. A cluster's workers, and the user's own
    ``SPARK_HOME``, stay as they are.
    """
    if "SPARK_HOME" in os.environ or not master.startswith("local"):
        yield
        return
    import pyspark

    home = folder / "spark"
    home.mkdir()
    for part in Path(pyspark.__path__[0]).iterdir():
        if part.name in _SPARKS_OWN:
            (home / part.name).symlink_to(part)
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _start(master: str, conf: Mapping[str, str], name: str, log: Path) -> SparkSession:
    # Spark 4.3 warns of pandas 3 whenever that is installed; nothing here uses it.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    settings = SparkConf(loadDefaults=False).setMaster(master).setAppName(name)
    settings.setAll([*{**_DEFAULTS, **conf}.items()])
    with log.open("ab") as file:
        # Java's workers inherit it.
        launch: Any = launch_gateway
        gateway = launch(settings, {"stdout": file, "stderr": file})
    context = SparkContext(conf=settings, gateway=gateway)
    # Both would print a stack when Java ends; the job reports that in one line.
    listener: Any = context._accumulatorServer
    listener.handle_error = lambda *_: None
    logging.getLogger().addFilter(_is_not_py4js)
    return SparkSession.builder.getOrCreate()


def _is_not_py4js(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _end_java() -> None:
    """End the session's Java process now, so that it writes nothing after the command's last line."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    process.stdin.close()
    process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
