"""Reads files or standard input in large pieces, in a thread of its own, so that waiting can be cancelled."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

STDIN = "-"
PIECE = 1 << 20  # bytes per read: about ten thousand lines
_AHEAD = 4  # pieces that a thread reads before they are asked for


@dataclass(slots=True)
class Piece:
    """A piece of a file; ``last`` is True for its last piece, which may be empty."""

    file: str
    data: bytes
    last: bool


def pieces(files: Sequence[str]) -> Iterator[Piece]:
    """All files, one after the other. A terminal or pipe yields what is available, without waiting for more.

    Raises OSError with the file's name.
    """
    for file in files or (STDIN,):
        if file == STDIN and sys.stdin is None:  # the parent process closed it
            raise OSError(errno.EBADF, "standard input is closed", name_of(file))
        fd = sys.stdin.fileno() if file == STDIN else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while data := os.read(fd, PIECE):
                yield Piece(name_of(file), data, False)
            yield Piece(name_of(file), b"", True)
        except OSError as error:
            raise OSError(error.errno, error.strerror, name_of(file)) from None
        finally:
            if file != STDIN:
                os.close(fd)


def name_of(file: str) -> str:
    return "<stdin>" if file == STDIN else file


def total_size(files: Sequence[str]) -> int | None:
    """Bytes of all files; None where they aren't known beforehand, as for a pipe."""
    total = 0
    for file in files:
        if file == STDIN or not os.path.isfile(file):
            return None
        total += os.path.getsize(file)
    return total if files else None


@dataclass(slots=True)
class _End:
    """Follows the last item: the error that ended the iteration, if any."""

    error: BaseException | None


class InThread(Generic[T]):
    """Runs an iterator in a thread, a few items in advance; its exceptions are raised here.

    The thread is a daemon, so that waiting for a terminal's next line doesn't delay the end of the process.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._loop = asyncio.get_running_loop()
        self._made: asyncio.Queue[T | _End] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        self._stopped = False
        threading.Thread(target=self._make, name="ottla-reading", daemon=True).start()

    def stop(self) -> None:
        self._stopped = True
        self._room.release()

    def _make(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                self._room.acquire()
                if self._stopped or not self._hand_over(item):
                    return
        except Exception as raised:
            error = raised
        self._hand_over(_End(error))

    def _hand_over(self, item: T | _End) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._made.put_nowait, item)
        except RuntimeError:  # the loop is closed, so no one waits
            return False
        return True

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            item = await self._made.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            self._room.release()
            yield item
