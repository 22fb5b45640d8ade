"""Errors from outside: of the libraries, catalogues and stores that hold a table. Which pass, and a line for each."""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from ottla_pipeline.landing.errors import LandingError

log = logging.getLogger("ottla_pipeline")

_LIBRARY: Final = re.compile(
    r"(sqlalchemy|sqlite3|pyiceberg|deltalake|_internal|pyarrow|fsspec|s3fs|gcsfs|adlfs|requests|urllib3|botocore|aiohttp"
    r"|azure|google|pydantic_core|thrift|psycopg2?|pymysql)(\.|$)"
)
"""The packages whose exceptions mean that something outside failed. deltalake's call themselves ``_internal``."""
_KNOWN: Final = re.compile(rf"{_LIBRARY.pattern}|ottla_")
_PASSING: Final = re.compile(
    r"OperationalError|InterfaceError|ConnectionError|Timeout|ServerError|ServiceUnavailableError|TooManyRequestsError"
    r"|CommitStateUnknownException|WaitingForLockException|TTransportException"
)
"""Classes of errors of catalogues after which the same call may succeed."""
_LOCKED: Final = ("locked", "busy")
PATIENCE: Final = 30.0
"""Seconds for which a call of a catalogue is tried again."""
_PAUSE: Final = 1.0
_LONGEST: Final = 300

T = TypeVar("T")


def is_outside(error: BaseException) -> bool:
    """Whether it is an error of a table's library, or came up in its code: of a file that it can't understand."""
    if any(_LIBRARY.match(one.__module__) for one in type(error).__mro__):
        return True
    if isinstance(error, LandingError):
        return False
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    # What the library calls, such as a codec, is neither's.
    return next((bool(_LIBRARY.match(one)) for one in modules[::-1] if _KNOWN.match(one)), False)


def passes(error: BaseException) -> bool:
    """Whether a catalogue's error may pass: a lock, a lost connection, a server that starts again."""
    if not is_outside(error) or not any(_PASSING.fullmatch(one.__name__) for one in type(error).__mro__):
        return False
    # SQLite has one class for a lock, which passes, and for a file that can't be opened or written.
    return "sqlite3" not in str(error) or any(word in str(error) for word in _LOCKED)


def said(error: BaseException) -> str:
    """An error in one line, with what to do if that is known."""
    # SQLAlchemy shows the statement, and links to a page.
    line = " ".join(str(error).partition("\n[SQL")[0].split()) or type(error).__name__
    if type(error).__module__ == "builtins" and not isinstance(error, OSError):
        line = f"its files can't be understood: {type(error).__name__}: {line}"
    line = line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
    if "sqlite3" in line and any(word in line for word in _LOCKED):
        return f"the catalogue's SQLite database is locked: end the program that has it open, such as Spark ({line})"
    return line


@contextmanager
def one_line(table: str | None) -> Iterator[None]:
    """Raises LandingError, which names the table, for what its library raises."""
    try:
        yield
    except Exception as error:
        if not is_outside(error):
            raise
        log.debug("%s failed outside", table, exc_info=True)
        raise LandingError(f"{table}: {said(error)}" if table else said(error)) from error


def patiently(table: str, call: Callable[[], T]) -> T:
    """Call a catalogue; again, for :data:`PATIENCE` seconds, while its errors may pass."""
    deadline = time.monotonic() + PATIENCE
    told = False
    while True:
        try:
            return call()
        except Exception as error:
            if not passes(error) or time.monotonic() + _PAUSE > deadline:
                raise
            if not told:
                log.warning("%s: %s; trying again for up to %d s", table, said(error), PATIENCE)
                told = True
            time.sleep(_PAUSE)
