"""Class archives: a JVM that finds its classes in one starts with half of the CPU.

A program's archive is made from what one run of it loads, once for each Java and classpath, and stays in ``.cache``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from harness import maven

_FOLDER = maven.CACHE / "classes"
_QUIET = ("-Xlog:disable",)
"""A JVM would report an archive that it can't use, and starts without."""


def archive_options(
    name: str, java: str, classpath: Sequence[Path], run: Callable[[list[str]], None]
) -> list[str]:
    """Options of a JVM that takes its classes from the program's archive.

    Args:
        name: the program.
        java: its Java.
        classpath: its jars in their order.
        run: starts the program with such options, and ends it by SIGTERM once it has done what it is for. Called if
            there is no archive yet.

    While another process makes the archive, or if it can't be made, there are no options.
    """
    archive = _archive(name, java, tuple(classpath))
    if not archive.exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        with archive.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return []
            if not archive.exists():
                _make(archive, run)
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive.stat().st_size else []


def _make(archive: Path, run: Callable[[list[str]], None]) -> None:
    """Make the archive, or an empty file if that fails: nothing else depends on it."""
    made = archive.with_suffix(f".{os.getpid()}")
    try:
        run([f"-XX:ArchiveClassesAtExit={made}", *_QUIET])
    finally:
        if not made.exists():
            made.touch()
        made.replace(archive)


@cache
def _archive(name: str, java: str, classpath: tuple[Path, ...]) -> Path:
    """Where the archive is. A JVM refuses one of other jars, or of another Java."""
    known = hashlib.sha256()
    for file in (Path(os.path.realpath(java)), *classpath):
        with suppress(OSError):
            found = file.stat()
            known.update(f"{file} {found.st_size} {found.st_mtime_ns}\n".encode())
    return _FOLDER / f"{name}-{known.hexdigest()[:16]}.jsa"
