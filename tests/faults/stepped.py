"""``python stepped.py CLOCK DEFECT ...``: ``ottla broker ...`` on a machine whose clock can be stepped.

SIGUSR1 holds the broker's event loop for HELD_SECONDS: its other threads go on.

CLOCK is a file with the clock's offset in nanoseconds, read whenever the broker reads the time. Writing another number
steps the clock, as ``date --set`` does. The monotonic clock (timers, deadlines) is unaffected, as on a real machine.
DEFECT names a defect in ``planted.py``; ``-`` means none.
"""

from __future__ import annotations

import importlib
import mmap
import signal
import struct
import sys
import time
from pathlib import Path

OFFSET = struct.Struct("<q")
HELD_SECONDS = 10.0


def step(clock: Path, seconds: float) -> None:
    """Step the clock of the broker that was started with this file to ``seconds`` ahead of the real time."""
    with clock.open("r+b" if clock.exists() else "wb") as file:
        file.write(OFFSET.pack(int(seconds * 1e9)))


def _shift_time_by(clock: Path) -> None:
    with clock.open("rb") as file:
        offset = mmap.mmap(file.fileno(), OFFSET.size, access=mmap.ACCESS_READ)
    real_ns = time.time_ns

    def time_ns() -> int:
        return real_ns() + int(OFFSET.unpack_from(offset)[0])

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


def main() -> None:
    clock, defect = sys.argv[1:3]
    del sys.argv[1:3]
    # The tests' folder itself has no modules for the broker.
    sys.path[0] = str(Path(__file__).parents[2])
    _shift_time_by(Path(clock))
    if defect != "-":
        importlib.import_module("tests.faults.planted").DEFECTS[defect]()
    from ottla_broker.cli import broker

    # Python runs the handler on the main thread, which is the loop's.
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(HELD_SECONDS))
    broker(prog_name="ottla broker")


if __name__ == "__main__":
    main()
