"""A disk that fails at a chosen step: for ever, as after a kill, or once, as a full disk."""

from __future__ import annotations

import errno
import os

from ottla_broker.log.files import Files, LogFile


class Killed(BaseException):
    """The process was killed: nothing it does afterwards reaches the disk."""


class _FaultyFile(LogFile):
    __slots__ = ()

    @property
    def _faulty(self) -> FaultyFiles:
        assert isinstance(self._files, FaultyFiles)
        return self._files

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        self._faulty.step(self.path)
        super().write(data, position)

    def truncate(self, size: int) -> None:
        self._faulty.step(self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._faulty.step(self.path)
        super().sync()


class FaultyFiles(Files):
    """Counts changes of the disk; once armed, the one of that number fails."""

    def __init__(self) -> None:
        super().__init__(64)
        self.steps = 0
        self.fail_at = 0
        self.for_good = True
        self.dead = False

    def arm(self, step: int, *, for_good: bool) -> None:
        """Fail at the ``step``-th change from now on, counted from 1."""
        self.steps, self.fail_at, self.for_good = 0, step, for_good

    def step(self, path: str) -> None:
        if self.dead:
            raise Killed
        self.steps += 1
        if self.steps == self.fail_at:
            if self.for_good:
                self.dead = True
                raise Killed
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def file(self, path: str) -> LogFile:
        return _FaultyFile(self, path)

    def rename(self, old: str, new: str) -> None:
        self.step(new)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self.step(path)
        super().unlink(path)

    def replace(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.step(path)
        super().replace(path, data, sync=sync)

    def write_all(self, path: str, data: bytes) -> None:
        self.step(path)
        super().write_all(path, data)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.step(path)
        super().set_modified_ms(path, modified_ms)

    def sync_path(self, path: str) -> None:
        self.step(path)
        super().sync_path(path)
