"""The output of ``ottla consume``: a file, a pipe or a terminal, written without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
from collections.abc import Callable

from ..shared.terminal import OutputClosedError

# A pipe or terminal that can be written to takes this many bytes without blocking (PIPE_BUF).
_WHOLE = 4096
# Seconds that a write may continue after Ctrl-C, so that exactly the written records are committed.
_GRACE = 1.0


class Output:
    """Unbuffered, so that written records may be committed."""

    def __init__(self, path: str | None) -> None:
        """``path`` None is standard output. Raises OSError."""
        self._path = path
        self._blocks = False
        self._is_own = path is not None
        if path is None:
            self._fd = sys.stdout.fileno()
        else:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        mode = os.fstat(self._fd).st_mode
        self._is_file = stat.S_ISREG(mode)
        self._is_pipe = stat.S_ISFIFO(mode)
        if path is None and not self._is_file:
            # Reopened: other processes that share standard output keep a blocking one.
            try:
                self._fd = os.open(
                    f"/proc/self/fd/{self._fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                )
                self._is_own = True
            except OSError:  # a socket, another user's terminal, no /proc
                self._blocks = True
        self.bytes = 0
        """Bytes written so far."""

    async def write(self, data: bytes) -> None:
        """Write all of ``data``. Raises OutputClosedError when the reader has gone, OSError.

        When cancelled, it raises CancelledError once all is written, or after _GRACE seconds.
        """
        if self._is_file:
            self._write_file(data)
            return
        writing = asyncio.ensure_future(self._write_slowly(data))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing], timeout=_GRACE)
            if not writing.done():
                writing.cancel()
            elif (error := writing.exception()) is not None:
                raise error from None
            raise

    def _write_file(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                written = os.write(self._fd, view)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self._path or "standard output") from None
            self.bytes += written
            view = view[written:]

    async def _write_slowly(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if self._blocks and not self._takes_some():
                await self._writable()
            try:
                written = os.write(self._fd, view[:_WHOLE] if self._blocks else view)
            except BlockingIOError:
                await self._writable()
                continue
            except BrokenPipeError:
                raise OutputClosedError from None
            self.bytes += written
            view = view[written:]

    def _takes_some(self) -> bool:
        """Whether a write wouldn't block: there is room, or the reader has gone."""
        poll = select.poll()  # select() fails for descriptors beyond 1023
        poll.register(self._fd, select.POLLOUT)
        return bool(poll.poll(0))

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def is_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_writer(self._fd, is_ready)
        try:
            await ready
        finally:
            loop.remove_writer(self._fd)

    def watch(self, gone: Callable[[], object]) -> None:
        """Call ``gone`` when a pipe's reader closes it, even while there is nothing to write."""
        if self._is_pipe:
            # A pipe's writing end becomes readable only with the error.
            asyncio.get_running_loop().add_reader(self._fd, gone)

    def close(self) -> None:
        if self._is_pipe:
            asyncio.get_running_loop().remove_reader(self._fd)
        if self._is_own:
            os.close(self._fd)
