"""Shared by the log's tests: logs in temporary folders, and a disk that fails on demand."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import Files, LogFile
from ottla_broker.log.log import Log

NOW_MS = 1_700_000_000_000


class FaultyFile(LogFile):
    """A log file whose writes and truncations fail when its disk does."""

    __slots__ = ()

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        disk = self._files
        assert isinstance(disk, FaultyFiles)
        room = disk.room
        if room is None:
            super().write(data, position)
            return
        super().write(memoryview(data)[:room], position)
        if len(data) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        disk.room = room - len(data)

    def truncate(self, size: int) -> None:
        disk = self._files
        assert isinstance(disk, FaultyFiles)
        if disk.truncation_fails:
            raise OSError(errno.EIO, "Input/output error")
        super().truncate(size)


class FaultyFiles(Files):
    """The real disk, with ``room`` bytes left or a failing fsync if a test sets that."""

    def __init__(self) -> None:
        super().__init__(max_open=64)
        self.room: int | None = None
        self.sync_fails = False
        self.truncation_fails = False
        self.syncs = 0

    def file(self, path: str) -> LogFile:
        return FaultyFile(self, path)

    def sync_descriptor(self, descriptor: object) -> None:
        self.syncs += 1
        if self.sync_fails:
            raise OSError(errno.EIO, "Input/output error")

    def sync_path(self, path: str) -> None:
        if self.sync_fails:
            raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def disk() -> Iterator[FaultyFiles]:
    files = FaultyFiles()
    yield files
    files.close()


class Clock:
    """A time that only tests move."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def now() -> Clock:
    return Clock()


OpenLog = Callable[..., Log]


@pytest.fixture
def open_log(tmp_path: Path, disk: FaultyFiles, now: Clock) -> OpenLog:
    """``open_log(clean=…, **config)``: another log of ``flights-0`` in the test's folder, closed with ``lazy=True``."""

    def build(
        *,
        lazy: bool = False,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        **config: object,
    ) -> Log:
        folder = tmp_path / "flights-0"
        folder.mkdir(exist_ok=True)
        environment = LogEnvironment(disk, now, Random(1))
        log = Log(
            str(folder),
            "flights",
            0,
            LogConfig(**config),  # type: ignore[arg-type]
            environment,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
        )
        return log if lazy else log.open()

    return build
