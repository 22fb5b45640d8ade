"""``ottla broker`` that measures how long requests hold its event loop.

A file that it maps has 16 bytes: whether to measure, and the longest hold so far, in nanoseconds of the loop thread's
own CPU time. So a busy machine changes nothing. The test turns it on and off, and resets the longest.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.processes import BrokerProcess

_WORDS = struct.Struct("<qq")
_LONGEST = struct.Struct("<q")

_ROOT = str(Path(__file__).parents[2])
_PROGRAM = f"import sys; sys.path[0] = {_ROOT!r}; import tests.support.watched as it; it.main()"


class WatchedBroker(BrokerProcess):
    """A broker that measures itself between :meth:`watch` and :meth:`hold`."""

    @property
    def _file(self) -> Path:
        return self.folder.parent / "watched"

    @property
    def command(self) -> list[str]:
        self._file.write_bytes(bytes(_WORDS.size))
        python, _, _, *rest = super().command
        return [python, "-c", _PROGRAM, str(self._file), *rest]

    def watch(self) -> None:
        """Start to measure."""
        with self._file.open("r+b") as file:
            file.write(_WORDS.pack(1, 0))
        try:
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        except OSError:
            return

    def hold(self) -> float:
        """End measuring; returns the longest time, in seconds, for which the loop thread worked without a break."""
        longest: int
        _, longest = _WORDS.unpack(self._file.read_bytes())
        with self._file.open("r+b") as file:
            file.write(_WORDS.pack(0, 0))
        return longest / 1e9

    def memory(self, what: str) -> int:
        """Bytes of memory: now (``VmRSS``), or the most since :meth:`watch` (``VmHWM``); 0 if unknown."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(what))


def _measure(file: Path) -> None:
    from ottla_broker.network.reader import Reader
    from ottla_broker.network.tls_handshake import Handshake
    from ottla_broker.requests.dispatch import Dispatcher

    with file.open("r+b") as opened:
        words = mmap.mmap(opened.fileno(), _WORDS.size)
    last = 0
    measuring = False

    def look() -> None:
        nonlocal last, measuring
        now = time.thread_time_ns()
        on, longest = _WORDS.unpack_from(words)
        if now - last > longest:
            _LONGEST.pack_into(words, 8, now - last)
        last = now
        if on:
            asyncio.get_running_loop().call_soon(look)
        else:
            measuring = False

    def begin() -> None:
        nonlocal last, measuring
        if not measuring and words[0]:
            measuring = True
            last = time.thread_time_ns()
            asyncio.get_running_loop().call_soon(look)

    def measured(call: Any) -> Any:
        def measured_call(*args: Any) -> Any:
            begin()
            return call(*args)

        return measured_call

    # Where a client's bytes come first.
    Dispatcher.handle = measured(Dispatcher.handle)  # type: ignore[method-assign]
    Reader.on_readable = measured(Reader.on_readable)  # type: ignore[method-assign]
    Handshake._on_ready = measured(Handshake._on_ready)  # type: ignore[method-assign]


def main() -> None:
    file = Path(sys.argv.pop(1))
    _measure(file)
    from ottla_broker.cli import broker

    broker(prog_name="ottla broker")
